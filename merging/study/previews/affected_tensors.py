"""In which tensors two recipes on the same checkpoints may give different results."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from merging.methods.edits.manual import AFTER, ManualParams, resolve_params
from merging.models.families import UNMERGED, Parameter
from merging.recipes.recipe import Recipe
from merging.recipes.step import Step

Place = tuple[int, str]  # how many other steps come before it, and whether it works before or after the merge
Factors = NDArray[np.float64]  # (K, L), or (1, L) after the merge


def affected_tensors(recipe: Recipe, other: Recipe, parameters: Sequence[Parameter]) -> frozenset[str] | None:
    """Names of the tensors in which the results may differ; None if any may.

    Recipes that differ only in factors differ in the tensors that have others, unless a later step looks at all tensors
    before it changes one.

    Raises:
        ParameterError: rules that match nothing.
    """
    same = ("exemplars", "test_data", "adapt", "count_dead_params", "activation", "architecture")
    if _other_steps(recipe) != _other_steps(other) or any(
        getattr(recipe, name) != getattr(other, name) for name in same
    ):
        return None
    names = [name for name, _ in recipe.experts]
    here, there = _factors_by_step(recipe, names, parameters), _factors_by_step(other, names, parameters)
    merged = [parameter.name for parameter in parameters if parameter.role not in UNMERGED]
    changed = np.zeros(len(merged), dtype=bool)
    for place in here.keys() | there.keys():
        one = np.ones((1, len(merged)))
        tables = zip_longest(here.get(place, []), there.get(place, []), fillvalue=one)
        differs = np.any([(a != b).any(axis=0) for a, b in tables], axis=0)
        if differs.any() and place[1] != AFTER and _surveys_all_tensors(recipe, place[0]):
            return None
        changed |= differs
    return frozenset(name for name, differs in zip(merged, changed, strict=True) if differs)


def pretrained_tensors(recipe: Recipe, parameters: Sequence[Parameter]) -> frozenset[str]:
    """Names of the tensors that stay pretrained, bit for bit, because all factors of one step are 0."""
    names = [parameter.name for parameter in parameters if parameter.role not in UNMERGED]
    tables = _factors_by_step(recipe, [name for name, _ in recipe.experts], parameters).values()
    zero = [(table == 0).all(axis=0) for place in tables for table in place]
    return frozenset(name for index, name in enumerate(names) if any(each[index] for each in zero))


def _other_steps(recipe: Recipe) -> tuple[Step, ...]:
    """The steps that are no factors."""
    return tuple(step for step in recipe.steps if not isinstance(step.params, ManualParams))


def _factors_by_step(
    recipe: Recipe, experts: Sequence[str], parameters: Sequence[Parameter]
) -> dict[Place, list[Factors]]:
    """The factors of a recipe by the place in its chain."""
    tables: dict[Place, list[Factors]] = {}
    before = 0
    for step in recipe.steps:
        if isinstance(step.params, ManualParams):
            values = resolve_params(step.params, experts, parameters).values
            tables.setdefault((before, step.params.when), []).append(values)
        else:
            before += 1
    return tables


def _surveys_all_tensors(recipe: Recipe, before: int) -> bool:
    """Whether a step after the first ``before`` ones, factors left out, surveys the task vectors of all tensors."""
    steps = zip(recipe.methods, recipe.steps, strict=True)
    others = [(method, step) for method, step in steps if not isinstance(step.params, ManualParams)]
    return any(method.surveys(step.params) or method.gradients is not None for method, step in others[before:])
