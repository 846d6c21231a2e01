"""The tensors in which the results of two recipes on the same checkpoints may differ.

Factors are the edit with manual parameters: each multiplies a tensor of an expert, or of the merged model, by a number.
A survey is a pass over all tensors before a step, so that a change of one tensor can affect all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from merging.methods.edits.manual import AFTER, ManualParams, resolve_params
from merging.models.families import UNMERGED, Parameter
from merging.recipes.recipe import Recipe
from merging.recipes.step import Step

ChainPosition = tuple[int, str]  # of factors: the number of other steps before them, and ``when``
Factors = NDArray[np.float64]  # (K, L), or (1, L) after the merge


def find_affected_tensors(recipe: Recipe, other: Recipe, parameters: Sequence[Parameter]) -> frozenset[str] | None:
    """Names of the tensors in which the results may differ; None if any may.

    Recipes that differ only in factors differ in the tensors with different factors, unless a later step surveys all
    tensors before it changes one.

    Raises:
        ParameterError: a rule matches nothing.
    """
    compared_fields = ("exemplars", "test_data", "adapt", "count_dead_params", "activation", "architecture")
    if _list_other_steps(recipe) != _list_other_steps(other) or any(
        getattr(recipe, name) != getattr(other, name) for name in compared_fields
    ):
        return None
    names = [name for name, _ in recipe.experts]
    factors, other_factors = _resolve_factors(recipe, names, parameters), _resolve_factors(other, names, parameters)
    merged = [parameter.name for parameter in parameters if parameter.role not in UNMERGED]
    changed = np.zeros(len(merged), dtype=bool)
    for position in factors.keys() | other_factors.keys():
        ones = np.ones((1, len(merged)))
        tables = zip_longest(factors.get(position, []), other_factors.get(position, []), fillvalue=ones)
        differs = np.any([(a != b).any(axis=0) for a, b in tables], axis=0)
        # Factors after the merge (``AFTER``) precede no survey.
        if differs.any() and position[1] != AFTER and _surveys_all_tensors(recipe, position[0]):
            return None
        changed |= differs
    return frozenset(name for name, differs in zip(merged, changed, strict=True) if differs)


def find_pretrained_tensors(recipe: Recipe, parameters: Sequence[Parameter]) -> frozenset[str]:
    """Names of the tensors that stay pretrained, bit for bit, because all factors of one step are 0."""
    names = [parameter.name for parameter in parameters if parameter.role not in UNMERGED]
    tables = _resolve_factors(recipe, [name for name, _ in recipe.experts], parameters).values()
    is_zero = [(table == 0).all(axis=0) for step_tables in tables for table in step_tables]
    return frozenset(name for index, name in enumerate(names) if any(mask[index] for mask in is_zero))


def _list_other_steps(recipe: Recipe) -> tuple[Step, ...]:
    """The steps other than factors."""
    return tuple(step for step in recipe.steps if not isinstance(step.params, ManualParams))


def _resolve_factors(
    recipe: Recipe, experts: Sequence[str], parameters: Sequence[Parameter]
) -> dict[ChainPosition, list[Factors]]:
    """The factors of a recipe by their position in its chain."""
    tables: dict[ChainPosition, list[Factors]] = {}
    step_count = 0
    for step in recipe.steps:
        if isinstance(step.params, ManualParams):
            values = resolve_params(step.params, experts, parameters).values
            tables.setdefault((step_count, step.params.when), []).append(values)
        else:
            step_count += 1
    return tables


def _surveys_all_tensors(recipe: Recipe, first_index: int) -> bool:
    """Whether a step from ``first_index`` on, not counting factors, surveys the task vectors of all tensors."""
    steps = zip(recipe.methods, recipe.steps, strict=True)
    steps_with_methods = [(method, step) for method, step in steps if not isinstance(step.params, ManualParams)]
    return any(
        method.surveys(step.params) or method.gradients is not None for method, step in steps_with_methods[first_index:]
    )
