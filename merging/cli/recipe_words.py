"""Recipes that a command names: files, or ids of stored runs."""

from __future__ import annotations

from os.path import lexists
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from merging.recipes.recipe import Recipe
    from merging.runs.store import Store


def recipe_of(word: str, store: Store) -> Recipe:
    """The recipe of a stored run, or in a file, with paths that do not depend on the current folder."""
    from merging.recipes.recipe import Recipe
    from merging.sweeps.sweep import resolved

    path = Path(word)
    if not lexists(path) and (run := store.find(word)) is not None and run.recipe is not None:
        return resolved(run.recipe, Path.cwd())
    return resolved(Recipe.load(path), path.absolute().parent)
