"""Recipes that a command names: files, ids of stored runs, or configs of mergekit."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from os.path import lexists
from pathlib import Path
from typing import TYPE_CHECKING, Any

from merging.base.errors import RecipeError
from merging.base.text import did_you_mean, printable
from merging.cli.output import print_warning
from merging.models.formats.model_sources import ModelRef
from merging.models.model_references import HUB_PREFIX, PRETRAINED

if TYPE_CHECKING:
    from merging.recipes.recipe import Recipe
    from merging.study.runs.run_store import Store


def find_recipe(reference: str, store: Store) -> Recipe:
    """The recipe of a stored run or in a file, with absolute paths. Raises RecipeError if it names no models."""
    from merging.study.sweeps.sweep import with_absolute_paths

    path = Path(reference)
    if not lexists(path) and (run := store.find(reference)) is not None and run.recipe is not None:
        return with_absolute_paths(run.recipe, Path.cwd())
    recipe = load_recipe(path)
    for sentence in recipe.unused:
        print_warning(f"{path.name}: {sentence}")
    return with_absolute_paths(recipe, path.absolute().parent)


def load_recipe(path: Path) -> Recipe:
    """The recipe in a file. Raises RecipeError if there is none, or it names no pretrained model or no experts."""
    from merging.recipes.recipe import Recipe

    recipe = Recipe.load(path)
    if not (recipe.pretrained and recipe.experts):
        raise RecipeError(
            f"{printable(path.name)} names {'no experts' if recipe.pretrained else 'no pretrained model'}. Add lines "
            "such as “pretrained: bundled:pretrained” and “experts: {digits: bundled:digits, signs: bundled:signs}”."
        )
    return recipe


def read_mergekit_file(
    path: Path, pretrained: ModelRef | None, experts: Mapping[str, ModelRef], **recipe_fields: Any
) -> Recipe:
    """The recipe of a config of mergekit; its models are names of ``experts``, paths, or names on the Hub.

    ``recipe_fields`` are further fields of the recipe.

    Raises:
        RecipeError: the file is not such a config, or no recipe can express it; the message names the file.
    """
    from merging.recipes.mergekit.reading import read_mergekit
    from merging.recipes.mergekit.tensors import read_network_tensors

    named = {name: model.text for name, model in experts.items()}
    origin = pretrained.text if pretrained else ""
    find = _make_finder({**named, **({PRETRAINED: origin} if origin else {})}, path.absolute().parent)
    try:
        return read_mergekit(
            path.read_text("utf-8"),
            lambda reference: read_network_tensors(reference, family=recipe_fields.get("family", "")),
            find,
            origin,
            **recipe_fields,
        )
    except UnicodeDecodeError:
        raise RecipeError(f"{path.name} cannot be read as a config of mergekit: it is not text.") from None
    except OSError as error:
        raise RecipeError(f"{path.name} cannot be read as a config of mergekit: {error.strerror}.") from None
    except RecipeError as error:
        raise RecipeError(f"{path.name}: {error}") from None


def _make_finder(named: Mapping[str, str], folder: Path) -> Callable[[str], str]:
    """A function from a model in a config to its reference: one of ``named``, a path, or a name on the Hub.

    As in mergekit, a path that exists goes before a name on the Hub; it starts at the current folder, or else at
    ``folder``.
    """

    def find(written: str) -> str:
        if written in named:
            return named[written]
        if ModelRef(written).exists():
            return written
        if ModelRef(written, folder).exists():
            return ModelRef(written, folder).absolute()
        if re.fullmatch(r"[\w.-]+/[\w.-]+(@[\w./-]+)?", written) and not written.startswith("."):
            return HUB_PREFIX + written
        raise RecipeError(
            f"The model {printable(written)} was not found: it is neither a path nor an expert of this call."
            f"{did_you_mean(written, named)} Name it with --expert {printable(written)}=FILE, or correct the config."
        )

    return find
