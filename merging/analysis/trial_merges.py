"""Merges that are not stored: dozens of them in memory, for tables that compare chains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from merging.engine import run as engine
from merging.runs.inputs import open_inputs

if TYPE_CHECKING:
    from torch import Tensor

    from merging.analysis.context import MeasurementContext
    from merging.progress import ProgressCallback
    from merging.recipes.recipe import Recipe


def merge(context: MeasurementContext, recipe: Recipe, progress: ProgressCallback | None = None) -> dict[str, Tensor]:
    """The merged state dict of a recipe that needs no data; it is not stored.

    Raises:
        CheckpointError, CompatibilityError: its checkpoints cannot be merged. Cancelled: on request.
    """
    opened = open_inputs(recipe, benchmark=context.benchmark)
    result = engine.run(
        recipe,
        opened.pretrained,
        opened.experts,
        device=context.device,
        progress=progress,
        cancel=context.cancel,
    )
    opened.raise_if_changed()
    return result.state_dict
