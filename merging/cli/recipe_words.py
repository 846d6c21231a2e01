"""Recipes that a command names: files, or ids of stored runs."""

from __future__ import annotations

from os.path import lexists
from pathlib import Path
from typing import TYPE_CHECKING

from merging.cli.output import warn

if TYPE_CHECKING:
    from merging.recipes.recipe import Recipe
    from merging.study.runs.store import Store


def recipe_of(word: str, store: Store) -> Recipe:
    """The recipe of a stored run, or in a file, with paths that do not depend on the current folder."""
    from merging.recipes.recipe import Recipe
    from merging.study.sweeps.sweep import resolved

    path = Path(word)
    if not lexists(path) and (run := store.find(word)) is not None and run.recipe is not None:
        return resolved(run.recipe, Path.cwd())
    recipe = Recipe.load(path)
    for sentence in recipe.unused:
        warn(f"{path.name}: {sentence}")
    return resolved(recipe, path.absolute().parent)
