"""TIES on the entries of task vectors in any coordinates, tensor by tensor, and the parameters of merges by it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from merging.base.numerics.quantile import kth_smallest
from merging.base.numerics.sign_election import elect_sign, trim_rank, trim_vectors
from merging.methods.params import Params, choice, fraction
from merging.methods.shared import fields

ROUNDING_SHARE = 1e-12  # an entry below this share of its task's largest is a rounding error of a change of coordinates
TIES, PLAIN = "ties", "plain"


@dataclass(frozen=True, kw_only=True)
class EntryParams(Params):
    """The parameters of a merge of entries."""

    rule: str = choice(
        TIES,
        PLAIN,
        label="Rule",
        help="Trim and elect signs as TIES does, or take plain sums or means, which the coordinates do not change.",
    )
    density: float = fraction(
        0.2,
        open_low=True,
        symbol=r"\rho",
        label="Density",
        help="Share of each task's entries of a tensor that are kept, largest first.",
        when=("rule", TIES),
    )
    aggregation: str = choice(
        "mean", "sum", label="Aggregation", help="Take the mean of the agreeing entries (disjoint mean), or their sum."
    )
    scaling: float = fields.scaling(1.0, (0.0, 2.0))
    split_qkv: bool = fields.split_qkv(when=("rule", TIES))


def merge_entries(entries: Tensor, params: EntryParams) -> Tensor:
    """The entries (K, *S) of the tasks, merged by the rule: (*S).

    An exact tie elects no sign, as the signs of singular vectors are arbitrary.
    """
    if params.rule == PLAIN or not entries.numel():
        return entries.mean(dim=0) if params.aggregation == "mean" else entries.sum(dim=0)
    sizes = entries.abs().flatten(1)
    limits = (ROUNDING_SHARE * sizes.amax(dim=1)).cpu().tolist()
    if params.density < 1.0:
        ranks = [trim_rank(sizes.shape[1], params.density)] * len(sizes)
        limits = [max(pair) for pair in zip(limits, kth_smallest(lambda: [sizes], ranks), strict=True)]
    kept = trim_vectors(entries, limits)
    sign = elect_sign(kept, tie_sign=0.0)
    agreeing = (kept * sign).relu_()
    merged = agreeing.sum(dim=0) * sign
    return merged if params.aggregation == "sum" else merged / torch.count_nonzero(agreeing, dim=0).clamp(min=1)
