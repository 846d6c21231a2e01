"""In which tensors two recipes on the same checkpoints may give different results."""

from __future__ import annotations

from collections.abc import Sequence

from merging.checkpoints.families import Parameter
from merging.recipes.recipe import Recipe


def felt(recipe: Recipe, other: Recipe, parameters: Sequence[Parameter]) -> frozenset[str] | None:
    """Names of the tensors in which the results may differ; None if any may."""
    same = (recipe.steps, recipe.exemplars, recipe.count_dead_params) == (
        other.steps,
        other.exemplars,
        other.count_dead_params,
    )
    return frozenset() if same else None
