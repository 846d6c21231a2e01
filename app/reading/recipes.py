"""The way from a recipe to Merge."""

from __future__ import annotations

from app.reading import data
from app.session import address
from app.session.draft import Draft
from merging.errors import TaskError
from merging.recipes.recipe import Recipe


def set_of(recipe: Recipe) -> str | None:
    """The first set of models on Merge that holds every checkpoint of a recipe; None if there is none."""
    try:
        sets = data.model_sets()
    except TaskError:
        return None
    experts = set(recipe.experts)
    return next(
        (
            key
            for key, models in sets.items()
            if models.pretrained == recipe.pretrained and experts <= set(models.experts)
        ),
        None,
    )


def merge_query(recipe: Recipe) -> dict[str, str] | None:
    """The address of Merge with this recipe; None if no set there holds its models."""
    if (key := set_of(recipe)) is None:
        return None
    query = {address.CHAIN: Draft.of(recipe).chain()}
    if recipe.experts != tuple(data.model_sets()[key].experts):
        query[address.EXPERTS] = ",".join(name for name, _ in recipe.experts)
    return query | ({address.MODELS: key} if key else {})
