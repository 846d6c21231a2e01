"""Merges that are not stored: dozens of them in memory, for tables that compare chains; and recipes as plain data."""

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
    """A recipe on models of a benchmark, without saying where they lie: experts by name."""
    return {**recipe.to_plain(), "pretrained": "", "experts": [name for name, _ in recipe.experts]}


def read_plain_recipe(benchmark: Benchmark, plain: Mapping[str, Any]) -> Recipe:
    """The recipe that ``plain_recipe`` wrote, on the models of this benchmark."""
    experts = {name: benchmark.experts[name] for name in plain["experts"]}
    return Recipe.from_plain({**plain, "pretrained": benchmark.pretrained, "experts": experts})


def merge_in_memory(
    recipe: Recipe, benchmark: Benchmark, context: Context = QUIET, *, whole_weights: bool = False
) -> MergeResult:
    """The merge of a recipe, which is not stored. Exemplars are drawn as the recipe says.

    With ``whole_weights`` the experts' weights are merged in place of their task vectors, by the same rule: the
    pretrained model counts as zero, so the merge keeps nothing of it by itself.

    Raises:
        CheckpointError, CompatibilityError: its checkpoints cannot be merged. Cancelled: on request.
        MergingError: there is not enough memory.
    """
    opened, drawn = open_inputs(recipe, benchmark=benchmark), recipe.exemplars
    needed, free = in_memory_bytes(opened, context.device), free_memory()
    if needed > free:
        raise MergingError(f"A trial needs about {size_text(needed)} of memory; {size_text(free)} are free.")
    result = engine.run_recipe(
        recipe,
        _zero(opened.pretrained) if whole_weights else opened.pretrained,
        opened.experts,
        exemplars=benchmark.labeled_exemplars(drawn.per_task, drawn.seed) if drawn else None,
        context=context,
    )
    opened.raise_if_changed()
    return result


def most_memory(benchmark: Benchmark, plain: Iterable[Mapping[str, Any]], device: str) -> int:
    """Memory of the largest of the merges that ``plain_recipe`` wrote; equal chains of as many models count once."""
    recipes: dict[str, Recipe] = {}
    for each in plain:
        recipe = read_plain_recipe(benchmark, each)
        drawn = recipe.exemplars.per_task if recipe.exemplars else 0
        recipes[repr((recipe.steps, len(recipe.experts), drawn))] = recipe
    opened = (open_inputs(recipe, benchmark=benchmark) for recipe in recipes.values())
    return max((in_memory_bytes(each, device) for each in opened), default=0)


def _zero(pretrained: Checkpoint) -> Checkpoint:
    """A checkpoint with the same tensors, all zero."""
    names = [parameter.name for parameter in pretrained.parameters]
    return open_checkpoint({name: torch.zeros_like(pretrained.read(name)) for name in names}, pretrained.name)
