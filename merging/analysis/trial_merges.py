"""Merges that are not stored: dozens of them in memory, for tables that compare chains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from merging.engine import run as engine
from merging.formats.opening import open_checkpoint
from merging.runs.inputs import open_inputs

if TYPE_CHECKING:
    from torch import Tensor

    from merging.analysis.context import MeasurementContext
    from merging.checkpoints.checkpoint import Checkpoint
    from merging.progress import ProgressCallback
    from merging.recipes.recipe import Recipe


def merge(
    context: MeasurementContext,
    recipe: Recipe,
    progress: ProgressCallback | None = None,
    *,
    whole_weights: bool = False,
) -> dict[str, Tensor]:
    """The merged state dict of a recipe; it is not stored. Exemplars are drawn as the recipe says.

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
    return result.state_dict


def _zero(pretrained: Checkpoint) -> Checkpoint:
    """A checkpoint with the same tensors, all zero."""
    names = [parameter.name for parameter in pretrained.parameters]
    return open_checkpoint({name: torch.zeros_like(pretrained.read(name)) for name in names}, pretrained.name)
