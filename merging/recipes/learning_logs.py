"""The curves that papers' authors logged while a merge or an adapt learned, for recipes with the same chain.

The key of a curve is that of the preset it was logged for, or is mapped to it by ``ADAPT_PRESETS``.
"""

from __future__ import annotations

from dataclasses import replace

from merging.recipes.papers.claims import CURVES, Curve
from merging.recipes.presets import find_preset
from merging.recipes.recipe import Recipe
from merging.recipes.step import Step

BY_STEPS, BY_TWO_UPDATES = "steps", "iterations of two updates"
ADAPT_PRESETS = {
    "surgery_on_task_arithmetic": "surgery",
    "surgery_on_lw_adamerging": "adamerging_surgery",
}  # curve -> preset
FREE_PARAMETERS = {"steps", "seed", "shrink"}  # parameters that do not change the average course of learning


def logs_of(recipe: Recipe) -> tuple[Curve, ...]:
    """The curves of the presets with a recipe's edits and merge, whatever its adapt is.

    Only the number of steps, the seed, and the factor on the learned coefficients may differ.
    """
    return tuple(
        curve
        for curve in CURVES
        if curve.along == BY_STEPS and _is_same_chain(recipe, find_preset(curve.key).recipe("", {}))
    )


def adapt_logs_of(recipe: Recipe) -> tuple[Curve, ...]:
    """The curves of the presets with a recipe's edits, merge and adapt; the keys of their values become updates.

    Only the number of steps and the seed may differ.
    """
    if recipe.adapt is None:
        return ()
    curves = []
    for curve in CURVES:
        preset_recipe = find_preset(ADAPT_PRESETS[curve.key]).recipe("", {}) if curve.along == BY_TWO_UPDATES else None
        if preset_recipe is None or preset_recipe.adapt is None:
            continue
        if _is_same_chain(recipe, preset_recipe) and _compared_values(
            recipe.adapt, FREE_PARAMETERS
        ) == _compared_values(preset_recipe.adapt, FREE_PARAMETERS):
            curves.append(replace(curve, values={2 * n: value for n, value in curve.values.items()}))
    return tuple(curves)


def _is_same_chain(recipe: Recipe, other_recipe: Recipe) -> bool:
    return _compared_values(recipe.merge, FREE_PARAMETERS) == _compared_values(
        other_recipe.merge, FREE_PARAMETERS
    ) and [_compared_values(edit) for edit in recipe.edits] == [_compared_values(edit) for edit in other_recipe.edits]


def _compared_values(step: Step, ignored: frozenset[str] | set[str] = frozenset()) -> tuple[str, dict[str, object]]:
    return step.key, {name: value for name, value in step.params.to_plain().items() if name not in ignored}
