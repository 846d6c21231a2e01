"""Magnitude pruning: drop the smallest scalars of each task vector. A baseline."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from merging.base.files.tables import Columns
from merging.base.numerics.sign_election import trim_rank
from merging.methods.method import Citation, Edit, register
from merging.methods.params import Params
from merging.methods.shared import fields
from merging.methods.shared.trimming import density_from_prune_ratio, kth_smallest_of_slots, magnitudes
from merging.methods.slot import Slot, SlotStream, Survey


@dataclass(frozen=True, kw_only=True)
class MagnitudeParams(Params):
    """The parameters of magnitude pruning."""

    prune_ratio: float = fields.prune_ratio("Share of each task vector's scalars that are dropped, smallest first.")


def survey(slots: SlotStream, params: MagnitudeParams) -> Survey:
    """Per expert, the absolute value of the smallest scalar that is kept."""
    numel = slots.numel + slots.dead_numel  # with the zeros of an unused text tower, if the recipe counts them
    thresholds = [float("inf")] * len(slots.experts)
    if params.prune_ratio < 1.0:
        rank = trim_rank(numel, density_from_prune_ratio(params.prune_ratio))
        thresholds = kth_smallest_of_slots(slots, magnitudes, [rank] * len(slots.experts))
    rows = {"expert": slots.experts, "threshold": thresholds, "numel": numel, "prune_ratio": params.prune_ratio}
    return Survey(tuple(thresholds), {"prune_thresholds": Columns(rows)})


def _expert_masks(slot: Slot, thresholds: tuple[float, ...]) -> Tensor:
    """The masks (K, *S) of the scalars that each expert keeps."""
    shape = (-1, *[1] * slot.pretrained.dim())
    return slot.task_vectors.abs() >= slot.task_vectors.new_tensor(thresholds).reshape(shape)


def magnitude(slot: Slot, params: MagnitudeParams, thresholds: tuple[float, ...] | None) -> Tensor:
    """Task vectors with their smallest scalars set to zero, (K, *S) -> (K, *S)."""
    return slot.task_vectors if thresholds is None else slot.task_vectors * _expert_masks(slot, thresholds)


def kept_by_any(slot: Slot, params: MagnitudeParams, thresholds: tuple[float, ...] | None) -> Tensor | None:
    """The mask (*S) of the scalars that any expert keeps; None if all."""
    return None if thresholds is None else _expert_masks(slot, thresholds).any(dim=0)


register(
    Edit(
        key="magnitude",
        title="Magnitude pruning",
        summary="Drops the smallest scalars of each task vector.",
        formula=r"\tau_k \leftarrow \tau_k \odot [\,|\tau_k| \ge |\tau_k|_{(\lceil \eta P \rceil)}\,]",
        cite=Citation(
            key="han2015learning",
            authors="Han et al.",
            title="Learning both weights and connections for efficient neural networks",
            venue="NeurIPS",
            year=2015,
            arxiv="1506.02626",
        ),
        params=MagnitudeParams,
        run=magnitude,
        survey=survey,
        survey_when=lambda params: bool(params.prune_ratio > 0.0),
        survey_passes=2,
        kept=kept_by_any,
        elementwise=lambda params, parameter: True,
        version=2,  # keeps the ⌈ηP⌉-th smallest scalar, like the trim of TIES; version 1 dropped it if ηP was whole
        variant="One threshold per expert over all tensors (MWP in the LwPTV paper, used there before task "
        "arithmetic); keeps the same scalars as the trim of TIES at density 1 - η: int((1 - η)·P) + 1 scalars and ties "
        "at the threshold. Scalars that no expert keeps stay pretrained after any merge.",
    )
)
