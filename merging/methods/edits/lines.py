"""LiNeS: scale task vectors by a factor that grows linearly with depth."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from torch import Tensor

from merging.methods.method import Citation, Edit, register
from merging.methods.params import Params, real
from merging.methods.slot import Slot, SlotStream, Survey


@dataclass(frozen=True, kw_only=True)
class LinesParams(Params):
    """The parameters of LiNeS."""

    base: float | None = real(
        None,
        low=0.0,
        high=1000.0,
        optional=True,
        unset="1/K for K experts",
        slider=(0.0, 1.0),
        step=0.005,
        symbol=r"\alpha",
        label="Factor of the first block",
        help="Also the factor of every tensor outside the blocks.",
    )
    slope: float = real(
        0.5,
        low=0.0,
        high=1000.0,
        slider=(0.0, 1.5),
        step=0.05,
        symbol=r"\beta",
        label="Rise over depth",
        help="Factor of the last block minus that of the first.",
    )


Factors = dict[tuple[str, int | None], float]  # (tower, block) -> factor; None: outside the blocks


def survey(slots: SlotStream, params: LinesParams) -> Survey:
    """The factor of every block, from the first to the last block of each tower."""
    import pandas as pd

    base = 1 / len(slots.experts) if params.base is None else params.base
    factors: Factors = {(p.tower, None): base for p in slots.parameters}
    blocks = list(dict.fromkeys(sorted((p.tower, p.block) for p in slots.parameters if p.block is not None)))
    for _, group in groupby(blocks, key=itemgetter(0)):
        tower_blocks = list(group)
        last = max(len(tower_blocks) - 1, 1)
        factors |= {block: base + params.slope * i / last for i, block in enumerate(tower_blocks)}
    rows = {"block": [number for _, number in blocks], "factor": [factors[block] for block in blocks]}
    towers = {"tower": [tower for tower, _ in blocks]} if any(tower for tower, _ in blocks) else {}
    return Survey(factors, {"block_factors": pd.DataFrame(towers | rows)})


def lines(slot: Slot, params: LinesParams, factors: Factors) -> Tensor:
    """Task vectors times the factor of their block, (K, *S) -> (K, *S)."""
    return factors[slot.parameter.tower, slot.block] * slot.task_vectors


register(
    Edit(
        key="lines",
        title="LiNeS",
        summary="Scales task vectors by a factor that grows with depth, because shallow blocks hold what tasks share.",
        formula=r"\tau_k^l \leftarrow \Big(\alpha + \beta\,\frac{l}{B - 1}\Big)\,\tau_k^l, \quad l = 0, \dots, B - 1",
        cite=Citation(
            key="wang2025lines",
            authors="Wang et al.",
            title="LiNeS: post-training layer scaling prevents forgetting and enhances model merging",
            venue="ICLR",
            year=2025,
            arxiv="2410.17146",
        ),
        params=LinesParams,
        run=lines,
        survey=survey,
        survey_passes=0,
        elementwise=lambda params, parameter: True,
        variant="Use it before a merge with scaling 1. Every tensor outside the blocks, including the output "
        "projection, has the first block's factor, as in the released code, and so does a single block. The authors' "
        "first factor for TIES, a ratio of norms over K, can be set by hand.",
    )
)
