"""TIES: trim each task vector, elect a sign per scalar, merge what agrees with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import pandas as pd
import torch
from torch import Tensor

from merging.methods.method import Citation, Merge, register
from merging.methods.params import Params, choice, fraction
from merging.methods.shared import fields
from merging.methods.shared.trimming import trim_rank
from merging.methods.slot import Slot, SlotStream, Survey
from merging.numerics.quantile import kth_smallest


@dataclass(frozen=True, kw_only=True)
class TiesParams(Params):
    """The parameters of TIES."""

    density: float = fraction(
        0.2, open_low=True, symbol=r"\rho", label="Density", help="Share of each task vector's largest scalars kept."
    )
    aggregation: str = choice(
        "sum", "mean", label="Aggregation", help="Sum the agreeing scalars, or take their mean (disjoint mean)."
    )
    scaling: float = fields.scaling(0.3, (0.0, 2.0))
    scope: str = choice(
        "global", "tensor", label="Trim scope", help="One threshold per expert over all tensors, or one per tensor."
    )


@dataclass(frozen=True)
class TrimThresholds:
    """Statistics over all tensors: each expert's threshold, and the sign that exact ties take."""

    thresholds: tuple[float, ...] | None  # None: nothing is trimmed, or the scope is one tensor
    tie_sign: float


def _trim(slot: Slot, params: TiesParams, thresholds: tuple[float, ...] | None) -> Tensor:
    """Task vectors with everything below the thresholds set to zero, (K, *S)."""
    vectors = slot.task_vectors
    if params.density == 1.0:
        return vectors
    if thresholds is None:
        flat = vectors.abs().flatten(1)
        thresholds = tuple(kth_smallest(lambda: [flat], [trim_rank(flat.shape[1], params.density)] * len(flat)))
    # hardshrink drops |x| <= limit in one pass; the limit just below the threshold keeps the threshold itself.
    below = [_just_below(threshold, vectors.dtype) for threshold in thresholds]
    trimmed = torch.empty_like(vectors)
    for row, limit, out in zip(vectors, below, trimmed, strict=True):
        torch.hardshrink(row, limit, out=out)
    return trimmed


@lru_cache(maxsize=1024)
def _just_below(threshold: float, dtype: torch.dtype) -> float:
    return float(torch.nextafter(torch.tensor(threshold, dtype=dtype), torch.tensor(-1.0, dtype=dtype)))


def survey(slots: SlotStream, params: TiesParams) -> Survey:
    """The global thresholds, and the majority of elected signs for exact ties."""
    thresholds: tuple[float, ...] | None = None
    table: dict[str, pd.DataFrame] = {}
    if params.density < 1.0 and params.scope == "global":
        thresholds, table = _global_thresholds(slots, params)
    votes = sum(int(_trim(slot, params, thresholds).sum(dim=0).sign().sum()) for slot in slots)
    return Survey(TrimThresholds(thresholds, float((votes > 0) - (votes < 0))), table)


def _global_thresholds(slots: SlotStream, params: TiesParams) -> tuple[tuple[float, ...], dict[str, pd.DataFrame]]:
    def sizes() -> Iterator[Tensor]:
        return (slot.task_vectors.abs().reshape(len(slot.experts), -1) for slot in slots)

    counted = slots.numel + slots.dead_numel
    ranks = [trim_rank(counted, params.density)] * len(slots.experts)
    thresholds = tuple(kth_smallest(sizes, ranks, zeros=slots.dead_numel))
    rows = {"expert": slots.experts, "threshold": thresholds, "numel": counted, "density": params.density}
    return thresholds, {"trim_thresholds": pd.DataFrame(rows)}


def ties(slot: Slot, params: TiesParams, statistics: TrimThresholds) -> Tensor:
    """Trim, elect, merge: (K, *S) -> (*S)."""
    trimmed = _trim(slot, params, statistics.thresholds)
    sign = trimmed.sum(dim=0).sign()
    sign = sign + statistics.tie_sign * (1 - sign.abs())
    agreeing = (trimmed * sign).relu()  # sizes of the scalars that have the elected sign, zero elsewhere
    merged = agreeing.sum(dim=0) * sign
    if params.aggregation == "mean":
        merged = merged / agreeing.sign().sum(dim=0).clamp(min=1)
    return params.scaling * merged


register(
    Merge(
        key="ties",
        title="TIES",
        summary="Keeps each task vector's largest scalars, elects a sign per scalar, and merges those that agree.",
        formula=r"\theta = \theta_0 + \lambda \sum_{k : \hat\tau_k \gamma > 0} \hat\tau_k, \quad "
        r"\gamma = \mathrm{sign} \sum_k \hat\tau_k, \quad \hat\tau_k = \mathrm{top}_{\rho}(\tau_k)",
        cite=Citation(
            key="yadav2023ties",
            authors="Yadav et al.",
            title="TIES-Merging: resolving interference when merging models",
            venue="NeurIPS",
            year=2023,
            arxiv="2306.01708",
        ),
        params=TiesParams,
        run=ties,
        survey=survey,
        survey_passes=3,
        elementwise=lambda params: params.scope == "global",
        variant="Trims over the whole model by default, as the authors do (mergekit trims per tensor). Sum with "
        "scaling 0.3 is the AdaMerging and LwPTV setting; the authors' own is mean with scaling 1. "
        "int(d·ρ) + 1 scalars and ties survive; an exactly zero vote takes the majority sign of the whole model.",
    )
)
