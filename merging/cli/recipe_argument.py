"""Recipes that a command names: files, or ids of stored runs."""

from __future__ import annotations

from os.path import lexists
from pathlib import Path
from typing import TYPE_CHECKING

from merging.cli.output import print_warning

if TYPE_CHECKING:
    from merging.recipes.recipe import Recipe
    from merging.study.runs.run_store import Store


def find_recipe(reference: str, store: Store) -> Recipe:
    """The recipe of a stored run or in a file, with absolute paths."""
    from merging.recipes.recipe import Recipe
    from merging.study.sweeps.sweep import with_absolute_paths

    path = Path(reference)
    if not lexists(path) and (run := store.find(reference)) is not None and run.recipe is not None:
        return with_absolute_paths(run.recipe, Path.cwd())
    recipe = Recipe.load(path)
    for sentence in recipe.unused:
        print_warning(f"{path.name}: {sentence}")
    return with_absolute_paths(recipe, path.absolute().parent)
