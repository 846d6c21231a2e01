"""Merges that are tried and forgotten: by the dozen, in memory, for tables that compare chains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from merging.engine import run as engine
from merging.runs.inputs import open_inputs

if TYPE_CHECKING:
    from torch import Tensor

    from merging.analysis.context import MeasurementContext
    from merging.progress import ProgressCallback
    from merging.recipes.recipe import Recipe


def merge(subject: MeasurementContext, recipe: Recipe, progress: ProgressCallback | None = None) -> dict[str, Tensor]:
    """The merged state dict of a recipe that needs no data, which no store keeps.

    Raises:
        CheckpointError, CompatibilityError: its checkpoints cannot be merged. Cancelled: asked to stop.
    """
    opened = open_inputs(recipe, benchmark=subject.benchmark)
    found = engine.run(
        recipe,
        opened.pretrained,
        opened.experts,
        device=subject.device,
        progress=progress,
        cancel=subject.cancel,
    )
    opened.raise_if_changed()
    return found.state_dict
