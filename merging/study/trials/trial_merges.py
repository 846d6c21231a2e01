"""Merges in memory, which are never stored, for tables that compare many chains; and their recipes as plain data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from merging.base.errors import MergingError
from merging.base.free_memory import free_memory
from merging.base.text import size_text
from merging.engine import run as engine
from merging.models.formats.model_sources import open_checkpoint
from merging.recipes.recipe import Recipe
from merging.study.runs.estimate import in_memory_bytes
from merging.study.runs.opened_recipe import open_inputs
from merging.tasks.context import QUIET, Context

if TYPE_CHECKING:
    from merging.engine.run import MergeResult
    from merging.images.benchmarks.benchmark import Benchmark
    from merging.models.checkpoint import Checkpoint


def plain_recipe(recipe: Recipe) -> dict[str, Any]:
    """A recipe on models of a benchmark as plain data, with experts by name and without paths."""
    return {**recipe.to_plain(), "pretrained": "", "experts": [name for name, _ in recipe.experts]}


def read_plain_recipe(benchmark: Benchmark, recipe_data: Mapping[str, Any]) -> Recipe:
    """The recipe that ``plain_recipe`` wrote, on the models of this benchmark."""
    experts = {name: benchmark.experts[name] for name in recipe_data["experts"]}
    return Recipe.from_plain({**recipe_data, "pretrained": benchmark.pretrained, "experts": experts})


def merge_in_memory(
    recipe: Recipe, benchmark: Benchmark, context: Context = QUIET, *, whole_weights: bool = False
) -> MergeResult:
    """The merge of a recipe in memory, with exemplars as the recipe samples them.

    With ``whole_weights`` the experts' weights are merged instead of their task vectors, by the same rule: the
    pretrained model is replaced by zeros.

    Raises:
        CheckpointError, CompatibilityError: the checkpoints cannot be merged. Cancelled.
        MergingError: there is not enough memory.
    """
    opened, sampling = open_inputs(recipe, benchmark=benchmark), recipe.exemplars
    needed, free = in_memory_bytes(opened, context.device), free_memory()
    if needed > free:
        raise MergingError(f"A trial needs about {size_text(needed)} of memory; {size_text(free)} are free.")
    result = engine.run_recipe(
        recipe,
        _make_zero_checkpoint(opened.pretrained) if whole_weights else opened.pretrained,
        opened.experts,
        exemplars=benchmark.labeled_exemplars(sampling.per_task, sampling.seed) if sampling else None,
        context=context,
    )
    opened.raise_if_changed()
    return result


def estimate_largest_merge(benchmark: Benchmark, plain_recipes: Iterable[Mapping[str, Any]], device: str) -> int:
    """Bytes of memory for the largest of the merges that ``plain_recipe`` wrote; equal chains are estimated once."""
    recipes: dict[str, Recipe] = {}
    for recipe_data in plain_recipes:
        recipe = read_plain_recipe(benchmark, recipe_data)
        per_task = recipe.exemplars.per_task if recipe.exemplars else 0
        recipes[repr((recipe.steps, len(recipe.experts), per_task))] = recipe
    opened = (open_inputs(recipe, benchmark=benchmark) for recipe in recipes.values())
    return max((in_memory_bytes(recipe_data, device) for recipe_data in opened), default=0)


def _make_zero_checkpoint(pretrained: Checkpoint) -> Checkpoint:
    """A checkpoint with the same tensors, all zero."""
    names = [parameter.name for parameter in pretrained.parameters]
    return open_checkpoint({name: torch.zeros_like(pretrained.read(name)) for name in names}, pretrained.name)
