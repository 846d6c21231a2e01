"""LwPTV: prune the layers (or parameters) in which task vectors hardly differ from their mean."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from merging.methods.method import Edit, register
from merging.methods.params import Params, choice, flag
from merging.methods.shared import citations, fields, saliency
from merging.methods.shared.trimming import floor_share, kth_smallest_of_slots
from merging.methods.slot import Slot, SlotStream, Survey
from merging.models.families import Parameter


@dataclass(frozen=True, kw_only=True)
class LwptvParams(Params):
    """The parameters of LwPTV."""

    prune_ratio: float = fields.prune_ratio("Share of layers (or parameters) that each expert drops.")
    shared: bool = flag(
        True, label="Shared mask", help="Keep for all experts every tensor (or scalar) that any expert keeps."
    )
    score: str = choice(
        saliency.DEVIATION,
        saliency.MEAN_ABS,
        label="Saliency score",
        help="Mean absolute deviation from the mean task vector, or mean absolute value.",
    )
    granularity: str = choice(
        "tensor", "parameter", label="Granularity", help="Keep or drop whole tensors (LwPTV) or scalars (PwPTV)."
    )
    split_qkv: bool = fields.split_qkv(when=("granularity", "tensor"))


Masks = dict[str, tuple[bool, ...]]  # tensor granularity: tensor -> whether each expert keeps it
Limits = tuple[float, ...]  # parameter granularity: the score that kept scalars exceed, per expert


def survey(slots: SlotStream, params: LwptvParams) -> Survey:
    """The masks (tensor granularity) or the thresholds (parameter granularity), from all tensors."""
    warnings: tuple[str, ...] = ()
    if len(slots.experts) == 1 and params.score == saliency.DEVIATION and params.prune_ratio > 0:
        warnings = ("lwptv with one expert prunes everything: a single task vector never deviates from its mean.",)
    if params.granularity == "parameter":
        return Survey(_find_thresholds(slots, params), warnings=warnings)
    # ``dead_tensors`` are those of an unused text tower, whose score is zero, if the recipe counts them.
    scores = saliency.scores(slots, params.score)
    if len(slots.experts) > 1 and not scores.any() and params.prune_ratio > 0:
        warnings = ("lwptv prunes everything: the task vectors are identical, so none deviates from their mean.",)
    expert_masks = saliency.own_masks(scores, params.prune_ratio, slots.dead_tensors)
    final_masks = saliency.final_masks(expert_masks, params.shared)
    masks = {p.name: tuple(bool(kept) for kept in final_masks[:, i]) for i, p in enumerate(slots.parameters)}
    table = saliency.saliency_table(
        scores,
        slots.experts,
        slots.parameters,
        slots.numels,
        params.prune_ratio,
        params.shared,
        slots.dead_tensors,
    )
    return Survey(masks, {"saliency": table}, warnings)


def _find_thresholds(slots: SlotStream, params: LwptvParams) -> Limits:
    """Per expert, the score that kept scalars exceed, by an exact quantile over all tensors."""

    def deviations(slot: Slot) -> Tensor:
        return saliency.deviations(slot.task_vectors, params.score).flatten(1)

    experts = len(slots.experts)
    numel = slots.numel + slots.dead_numel  # with the zeros of an unused text tower, if the recipe counts them
    rank = floor_share(numel, params.prune_ratio)
    if params.prune_ratio == 0.0:
        return (-np.inf,) * experts
    if rank >= numel:
        return (np.inf,) * experts
    return tuple(kth_smallest_of_slots(slots, deviations, [rank] * experts))


def is_dropped(parameter: Parameter, statistics: Masks | Limits) -> bool:
    """Whether no expert keeps this tensor."""
    return isinstance(statistics, dict) and not any(statistics[parameter.name])


def lwptv(slot: Slot, params: LwptvParams, statistics: Masks | Limits) -> Tensor:
    """Task vectors with pruned tensors or scalars set to zero, (K, *S) -> (K, *S)."""
    vectors = slot.task_vectors
    if not isinstance(statistics, dict):
        expert_masks = _expert_masks(slot, params, statistics)
        return vectors * (expert_masks.any(dim=0) if params.shared else expert_masks)
    masks = statistics[slot.name]
    return vectors if all(masks) else vectors * vectors.new_tensor(masks).reshape(-1, *[1] * (vectors.dim() - 1))


def kept_by_any(slot: Slot, params: LwptvParams, statistics: Masks | Limits) -> Tensor | None:
    """The mask (*S) of the scalars that any expert keeps; None if all."""
    if isinstance(statistics, dict):
        return None if any(statistics[slot.name]) else torch.zeros_like(slot.pretrained, dtype=torch.bool)
    return _expert_masks(slot, params, statistics).any(dim=0)


def _expert_masks(slot: Slot, params: LwptvParams, limits: Limits) -> Tensor:
    """The masks (K, *S) of the scalars that each expert keeps."""
    shape = (-1, *[1] * slot.pretrained.dim())
    return saliency.deviations(slot.task_vectors, params.score) > slot.task_vectors.new_tensor(limits).reshape(shape)


register(
    Edit(
        key="lwptv",
        title="LwPTV",
        summary="Keeps the pretrained weights of layers in which the task vectors hardly differ from their mean.",
        formula=r"s_k^l = \mathrm{mean}\,|\tau_k^l - \bar\tau^l|, \quad "
        r"m_k^l = [\,s_k^l > s_k^{(\lfloor \eta L \rfloor)}\,], \quad \hat m^l = \bigvee_k m_k^l",
        cite=citations.LWPTV,
        params=LwptvParams,
        run=lwptv,
        survey=survey,
        survey_passes=1,
        elementwise=lambda params, parameter: True,
        kept=kept_by_any,
        drops=is_dropped,
        variant="A layer is one named tensor of any kind, with q, k and v in one unless split_qkv is on. prune_ratio 0 "
        "keeps everything and 1 nothing (the literal rule would prune one tensor, or exceed the last index). Ties at "
        "the threshold are pruned.",
    )
)
