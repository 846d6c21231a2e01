"""PCB-Merging: scalars compete within their task and across tasks; the winners set the weights of a mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from merging.base.files.tables import Columns
from merging.methods.method import Citation, Merge, register
from merging.methods.params import Params, fraction
from merging.methods.shared import fields
from merging.methods.shared.trimming import kth_smallest_of_slots, magnitudes
from merging.methods.slot import Slot, SlotStream, Survey


@dataclass(frozen=True, kw_only=True)
class PcbParams(Params):
    """The parameters of PCB-Merging."""

    density: float = fraction(
        0.05,
        open_low=True,
        slider=(0.01, 0.3),
        symbol=r"\rho",
        label="Density",
        help="Share of each task vector's scalars that win and are merged.",
    )
    scaling: float = fields.scaling(1.2, (0.5, 2.0))
    clip: float = fraction(
        0.01,
        high=0.49,
        slider=(0.0, 0.1),
        step=0.005,
        symbol=r"\epsilon",
        label="Clipped tails",
        help="Share of each task vector's scalars clipped at either end of the range of sizes.",
    )


@dataclass(frozen=True)
class PcbLimits:
    """Limits per expert over all tensors, one number each; the fields are columns of the table "pcb_limits"."""

    low: Sequence[float]  # absolute values are clipped to [low, high]
    high: Sequence[float]
    cut: Sequence[float] = ()  # the score that winners exceed
    top: Sequence[float] = ()  # the best score


def _scale(vectors: Tensor, limits: PcbLimits) -> Tensor:
    """Task vectors (K, *S) with sizes scaled to [0, 1] between their expert's limits; 0 if these are equal."""
    low, high = _as_column(limits.low, vectors), _as_column(limits.high, vectors)
    levels = torch.empty_like(vectors)
    for row, limit, out in zip(vectors, limits.low, levels, strict=True):
        torch.ops.aten.softshrink.out(row, limit, out=out)  # reduces sizes by the limit, and smaller ones to 0
    return levels.div_(torch.where(high > low, high - low, torch.inf)).clamp_(-1, 1)


def _score(vectors: Tensor, levels: Tensor, limits: PcbLimits) -> Tensor:
    """The scores (K, *S) of task vectors, 0 if an expert's limits are equal; they overwrite the ``levels`` (K, *S)."""
    across = _apply_tanh(vectors * levels.sum(dim=0))
    # The constant in exp(K (level² - 1)) prevents overflow; it cancels when scores are scaled to [0, 1].
    experts = float(len(vectors))
    scores = torch.addcmul(levels.new_tensor(-experts), levels, levels, value=experts, out=levels).exp_().mul_(across)
    spread = [float(high > low) for low, high in zip(limits.low, limits.high, strict=True)]
    return scores if all(spread) else scores.mul_(_as_column(spread, scores))


def _apply_tanh(values: Tensor) -> Tensor:
    """The hyperbolic tangents, in place; on the CPU numpy takes a tenth of torch's time."""
    if not values.is_cpu:
        return values.tanh_()
    np.tanh(values.numpy(), out=values.numpy())
    return values


def _as_column(values: Sequence[float], like: Tensor) -> Tensor:
    """One value per expert as (K, 1, ...), to broadcast against ``like`` (K, *S)."""
    return like.new_tensor(values).reshape(-1, *[1] * (like.dim() - 1))


def survey(slots: SlotStream, params: PcbParams) -> Survey:
    """The global limits of every expert, by exact quantiles."""
    # ``dead_numel`` counts the zeros of an unused text tower, if the recipe counts them.
    numel, experts = slots.numel + slots.dead_numel, len(slots.experts)

    def to_ranks(*positions: float) -> list[int]:
        """Ranks from 0, as in the published code: each position once per expert."""
        return [min(max(int(position), 0), numel - 1) for position in positions for _ in range(experts)]

    size_ranks = to_ranks(numel * params.clip, numel * (1 - params.clip) - 1)
    bounds = kth_smallest_of_slots(slots, magnitudes, size_ranks)
    size_range = PcbLimits(bounds[:experts], bounds[experts:])

    def compute_scores(slot: Slot, sign: int = 1) -> Tensor:
        scores = _score(slot.task_vectors, _scale(slot.task_vectors, size_range), size_range)
        return (scores if sign > 0 else scores.neg_()).clamp_(min=0).flatten(1)

    score_ranks = to_ranks(numel * (1 - params.density), numel - 1)
    quantiles = kth_smallest_of_slots(slots, compute_scores, score_ranks)
    if not all(quantiles):  # a quantile of 0 may stand for a negative score, since these were clamped
        mirrored = [numel - 1 - rank for rank in score_ranks]
        negated = kth_smallest_of_slots(slots, partial(compute_scores, sign=-1), mirrored)
        quantiles = [positive - negative for positive, negative in zip(quantiles, negated, strict=True)]
    limits = PcbLimits(size_range.low, size_range.high, quantiles[:experts], quantiles[experts:])
    return Survey(limits, {"pcb_limits": Columns({"expert": slots.experts, **vars(limits), "numel": numel})})


def pcb(slot: Slot, params: PcbParams, limits: PcbLimits) -> Tensor:
    """The mean of the clipped task vectors, weighted by the margins of their scores: (K, *S) -> (*S)."""
    vectors, levels = slot.task_vectors, _scale(slot.task_vectors, limits)
    low, high, cut, top = (_as_column(row, levels) for row in (limits.low, limits.high, limits.cut, limits.top))
    clipped = vectors.sign().mul_(low).addcmul_(levels, high - low)
    margin = top - cut  # 0 if no score exceeds the cut
    weights = _score(vectors, levels, limits).sub_(cut).div_(torch.where(margin > 0, margin, 1.0)).clamp_(0, 1)
    total = weights.sum(dim=0).clamp_(min=1e-12)
    return params.scaling * clipped.mul_(weights).sum(dim=0) / total


register(
    Merge(
        key="pcb",
        title="PCB-Merging",
        summary="Scores every scalar by its size within its task and its agreement across tasks, and takes the mean of "
        "the winners weighted by score.",
        formula=r"\theta = \theta_0 + \lambda \frac{\sum_k \beta_k u_k}{\sum_k \beta_k}, \quad "
        r"\beta_k = \mathrm{top}_{\rho}\big(e^{K \hat u_k^2} \tanh(\tau_k \textstyle\sum_j \pm\hat u_j)\big), \quad "
        r"u_k = \mathrm{clip}_{\epsilon}(\tau_k)",
        cite=Citation(
            key="du2024pcb",
            authors="Du et al.",
            title="Parameter competition balancing for model merging",
            venue="NeurIPS",
            year=2024,
            arxiv="2410.02396",
        ),
        params=PcbParams,
        run=pcb,
        survey=survey,
        survey_passes=4,
        elementwise=lambda params, parameter: True,
        variant="Follows the authors' vision script, which sets scaling 1.2: the paper's softmax across tasks is a "
        "tanh there, of each task vector times the sum of signed, scaled sizes. All quantiles are global per expert. "
        "Scores in the table are multiples of exp(K). A single expert keeps only its clipped winners.",
    )
)
