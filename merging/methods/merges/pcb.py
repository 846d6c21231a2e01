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
    """Global limits per expert: the range of absolute values, the score that winners exceed, and the best score."""

    low: Sequence[float]
    high: Sequence[float]
    cut: Sequence[float] = ()
    top: Sequence[float] = ()


def _compete(vectors: Tensor, limits: PcbLimits) -> tuple[Tensor, Tensor]:
    """Clipped task vectors and their scores, both (K, *S); scores are 0 if an expert's sizes are all equal."""
    low, high = _as_column(limits.low, vectors), _as_column(limits.high, vectors)
    # ``clamp`` with limits per expert takes three times as long.
    sizes, sign, spread = vectors.abs().maximum(low).minimum(high), vectors.sign(), high - low
    level = (sizes - low) / torch.where(spread > 0, spread, 1.0)
    # The constant exp(-K) prevents overflow with many experts; it cancels when scores are scaled to [0, 1].
    within = ((level.square() - 1) * len(vectors)).exp_()
    across = _tanh(vectors * (sign * level).sum(dim=0))
    return sizes * sign, within * across * (spread > 0)


def _tanh(values: Tensor) -> Tensor:
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
    counted, experts = slots.numel + slots.dead_numel, len(slots.experts)

    def ranks(*positions: float) -> list[int]:  # 0-based, as in the published code
        return [min(max(int(position), 0), counted - 1) for position in positions for _ in range(experts)]

    ends = ranks(counted * params.clip, counted * (1 - params.clip) - 1)
    bounds = kth_smallest_of_slots(slots, magnitudes, ends)
    size_range = PcbLimits(bounds[:experts], bounds[experts:])

    def scores(slot: Slot, sign: int = 1) -> Tensor:
        return _compete(slot.task_vectors, size_range)[1].mul_(sign).clamp_(min=0).flatten(1)

    score_ranks = ranks(counted * (1 - params.density), counted - 1)
    quantiles = kth_smallest_of_slots(slots, scores, score_ranks)
    if not all(quantiles):  # zero: the quantile may be negative
        mirrored = [counted - 1 - rank for rank in score_ranks]
        negative = kth_smallest_of_slots(slots, partial(scores, sign=-1), mirrored)
        quantiles = [above - below for above, below in zip(quantiles, negative, strict=True)]
    limits = PcbLimits(size_range.low, size_range.high, quantiles[:experts], quantiles[experts:])
    return Survey(limits, {"pcb_limits": Columns({"expert": slots.experts, **vars(limits), "numel": counted})})


def pcb(slot: Slot, params: PcbParams, limits: PcbLimits) -> Tensor:
    """The mean of the clipped task vectors, weighted by the margins of their scores: (K, *S) -> (*S)."""
    clipped, scores = _compete(slot.task_vectors, limits)
    cut, top = _as_column(limits.cut, scores), _as_column(limits.top, scores)
    margin = top - cut
    weights = ((scores - cut) / torch.where(margin > 0, margin, 1.0)).clamp(0, 1)  # no margin: no score above the cut
    return params.scaling * (weights * clipped).sum(dim=0) / weights.sum(dim=0).clamp(min=1e-12)


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
