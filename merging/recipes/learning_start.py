"""The start of a recipe that learns: the recipe of the model before the first step of learning."""

from __future__ import annotations

from merging.methods import registry
from merging.recipes.recipe import Recipe
from merging.recipes.step import Step


def start_of(recipe: Recipe) -> Recipe | None:
    """The recipe of the model that learning starts from, without a title; None for a recipe that does not learn.

    An adapt starts from its merged model. A merge that learns starts from a merge of the same task vectors that does
    not learn.
    """
    if recipe.adapt is not None:
        return _with_merge(recipe, recipe.merge)
    start = registry.find_merge(recipe.merge.key).starts_from(recipe.merge.params)
    if start is None:
        return None
    key, values = start
    return _with_merge(recipe, Step(key, registry.find_merge(key).params.build(values)))


def _with_merge(recipe: Recipe, merge: Step) -> Recipe:
    """The recipe's edits on its checkpoints with another merge, and without an adapt."""
    return Recipe.build(
        merge.key,
        merge.params.values(),
        [(edit.key, edit.params.values()) for edit in recipe.edits],
        recipe.pretrained,
        dict(recipe.experts),
        exemplars=recipe.exemplars.values() if recipe.exemplars else None,
        count_dead_params=recipe.count_dead_params,
        activation=recipe.activation,
        architecture=recipe.architecture,
        test_data=recipe.test_data.values() if recipe.test_data else None,
    )
