"""TIES: trim each task vector, elect a sign per scalar, merge the scalars that agree with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from merging.base.numerics.quantile import kth_smallest
from merging.base.numerics.sign_election import elect_sign, trim_rank, trim_vectors
from merging.methods.factor_rules import FactorRule
from merging.methods.method import Merge, register
from merging.methods.params import Params, choice, fraction
from merging.methods.shared import citations, expert_factors, fields
from merging.methods.shared.trimming import TrimThresholds, global_thresholds
from merging.methods.slot import ResultBeforeCount, Slot, SlotStream, Survey

if TYPE_CHECKING:
    from merging.base.files.tables import Table


@dataclass(frozen=True, kw_only=True)
class TiesParams(Params):
    """The parameters of TIES."""

    density: float = fraction(
        0.2,
        open_low=True,
        symbol=r"\rho",
        label="Density",
        help="Share of each task vector's scalars that are kept, largest first.",
    )
    aggregation: str = choice(
        "sum", "mean", label="Aggregation", help="Sum the agreeing scalars, or take their mean (disjoint mean)."
    )
    scaling: float = fields.scaling(0.3, (0.0, 2.0))
    scope: str = choice(
        "global", "tensor", label="Trim scope", help="One threshold per expert over all tensors, or one per tensor."
    )
    split_qkv: bool = fields.split_qkv(when=("scope", "tensor"))
    weights: tuple[FactorRule, ...] = expert_factors.factor_field(
        "Weights", "Factors of trimmed task vectors in the election, the sum and the mean, by expert and tensor."
    )
    zero_votes: str = choice(
        "majority", "plus", later=True, label="Exact ties",
        help="A vote of exactly zero elects the majority sign of the whole model, or plus.",
    )  # fmt: skip


def _trim(slot: Slot, params: TiesParams, thresholds: tuple[float, ...] | None) -> Tensor:
    """Task vectors with all scalars below the thresholds set to zero, (K, *S)."""
    if params.density < 1.0 and thresholds is None:
        flat = slot.task_vectors.abs().flatten(1)
        thresholds = tuple(kth_smallest(lambda: [flat], [trim_rank(flat.shape[1], params.density)] * len(flat)))
    return slot.task_vectors.clone() if thresholds is None else trim_vectors(slot.task_vectors, thresholds)


def survey(slots: SlotStream, params: TiesParams) -> Survey:
    """The global thresholds; the majority of elected signs, for exact ties, is counted in the merging pass."""
    thresholds: tuple[float, ...] | None = None
    table: dict[str, Table] = {}
    if params.density < 1.0 and params.scope == "global":
        thresholds, table = global_thresholds(slots, params.density)
    return Survey(TrimThresholds(thresholds), table)


def _weigh(slot: Slot, kept: Tensor, params: TiesParams) -> tuple[Tensor, Tensor | None]:
    """Trimmed task vectors (K, *S) times their weights, and the weights (K, 1, ...); None if there are none."""
    if not params.weights:
        return kept, None
    weights = expert_factors.as_rows(expert_factors.slot_factors(slot, params.weights), kept)
    return kept * weights, weights


def ties(slot: Slot, params: TiesParams, statistics: TrimThresholds) -> Tensor:
    """The task vector merged by trim, elect and merge, (K, *S) -> (*S)."""
    kept, weights = _weigh(slot, _trim(slot, params, statistics.thresholds), params)
    tie_sign = statistics.tie_sign if params.zero_votes == "majority" else 1.0
    return params.scaling * _merge_elected(kept, elect_sign(kept, tie_sign), params, weights)


def _merge_elected(kept: Tensor, sign: Tensor, params: TiesParams, weights: Tensor | None) -> Tensor:
    """Sum or mean of the scalars ``kept`` (K, *S) that have the elected sign, (*S); they are overwritten."""
    agreeing = kept.mul_(sign).relu_()  # absolute values of agreeing scalars, zero for others
    merged = agreeing.sum(dim=0) * sign
    if params.aggregation == "sum":
        return merged
    if weights is None:
        return merged / agreeing.sign_().sum(dim=0).clamp(min=1)
    total = agreeing.sign_().mul_(weights).sum(dim=0)  # may be negative, as weights may
    return merged / total.where(total != 0, 1.0)


def run_before_count(slot: Slot, params: TiesParams, statistics: TrimThresholds) -> ResultBeforeCount:
    """The result (*S) of ``ties`` with plus for exact ties, and the slot's votes (a scalar) for the sign of ties."""
    kept, weights = _weigh(slot, _trim(slot, params, statistics.thresholds), params)
    sign = kept.sum(dim=0).sign_()
    tied = 1 - sign.abs()
    merged = _merge_elected(kept, sign + tied, params, weights)
    if params.zero_votes == "majority":
        # Ties of kept scalars have a positive sum. The sign of an added zero matters only for a weight of -0.0.
        final = ((tied * merged).abs().sum() == 0) & ~_has_negative_zero(slot.pretrained)
    else:
        final = torch.ones((), dtype=torch.bool, device=sign.device)
    return ResultBeforeCount(params.scaling * merged, sign.sum().long(), final)


def _has_negative_zero(values: Tensor) -> Tensor:
    """Whether any number (*S) is -0.0: its bits are those of the least integer, and a minimum is fast to find."""
    integers = values.view(torch.int64 if values.dtype == torch.float64 else torch.int32)
    if not integers.numel():
        return torch.zeros((), dtype=torch.bool, device=values.device)
    return integers.amin() == torch.iinfo(integers.dtype).min


register(
    Merge(
        key="ties",
        title="TIES",
        summary="Keeps each task vector's largest scalars, elects a sign per scalar, and merges those that agree.",
        formula=r"\theta = \theta_0 + \lambda \sum_{k : \hat\tau_k \gamma > 0} \hat\tau_k, \quad "
        r"\gamma = \mathrm{sign} \sum_k \hat\tau_k, \quad \hat\tau_k = \mathrm{top}_{\rho}(\tau_k)",
        cite=citations.TIES,
        params=TiesParams,
        run=ties,
        survey=survey,
        survey_passes=2,
        run_before_count=run_before_count,
        content=expert_factors.content_with("weights"),
        elementwise=lambda params, parameter: params.scope == "global",
        variant="Trims over the whole model by default, as the authors do (mergekit trims per tensor). Sum with "
        "scaling 0.3 is the AdaMerging and LwPTV setting; the authors' own is mean with scaling 1. "
        "int(d·ρ) + 1 scalars and ties are kept; a vote of exactly zero uses the majority sign of the whole model by "
        "default (mergekit: plus). With weights, the mean divides by the weights of the scalars that agree.",
    )
)
