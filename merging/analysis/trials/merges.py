"""Merges that are not stored: dozens of them in memory, for tables that compare chains; and recipes as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from merging.engine import run as engine
from merging.formats.opening import open_checkpoint
from merging.recipes.recipe import Recipe
from merging.runs.inputs import open_inputs

if TYPE_CHECKING:
    from merging.analysis.context import TrialContext
    from merging.benchmarks.benchmark import Benchmark
    from merging.checkpoints.checkpoint import Checkpoint
    from merging.engine.run import MergeResult
    from merging.progress import ProgressCallback


def plain_recipe(recipe: Recipe) -> dict[str, Any]:
    """A recipe on models of a benchmark, without saying where they lie: experts by name."""
    return {**recipe.plain(), "pretrained": "", "experts": [name for name, _ in recipe.experts]}


def recipe_of(benchmark: Benchmark, plain: Mapping[str, Any]) -> Recipe:
    """The recipe that ``plain_recipe`` wrote, on the models of this benchmark."""
    experts = {name: benchmark.experts[name] for name in plain["experts"]}
    return Recipe.from_plain({**plain, "pretrained": benchmark.pretrained, "experts": experts})


def merge(
    context: TrialContext,
    recipe: Recipe,
    progress: ProgressCallback | None = None,
    *,
    whole_weights: bool = False,
) -> MergeResult:
    """The merge of a recipe, which is not stored. Exemplars are drawn as the recipe says.

    With ``whole_weights`` the experts' weights are merged in place of their task vectors, by the same rule: the
    pretrained model counts as zero, so the merge keeps nothing of it by itself.

    Raises:
        CheckpointError, CompatibilityError: its checkpoints cannot be merged. Cancelled: on request.
    """
    opened, drawn = open_inputs(recipe, benchmark=context.benchmark), recipe.exemplars
    result = engine.run(
        recipe,
        _zero(opened.pretrained) if whole_weights else opened.pretrained,
        opened.experts,
        exemplars=context.benchmark.labeled_exemplars(drawn.per_task, drawn.seed) if drawn else None,
        device=context.device,
        progress=progress,
        cancel=context.cancel,
    )
    opened.raise_if_changed()
    return result


def _zero(pretrained: Checkpoint) -> Checkpoint:
    """A checkpoint with the same tensors, all zero."""
    names = [parameter.name for parameter in pretrained.parameters]
    return open_checkpoint({name: torch.zeros_like(pretrained.read(name)) for name in names}, pretrained.name)
