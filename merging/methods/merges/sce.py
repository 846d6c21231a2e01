"""SCE: select the scalars that vary most, calculate coefficients per expert and tensor, erase minority signs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from merging.base.numerics.linear_algebra import to_float64, to_numbers
from merging.methods.method import Citation, Merge, register
from merging.methods.params import Params, fraction, real
from merging.methods.shared import fields
from merging.methods.slot import Slot

MIN_WEIGHT = 1e-6  # least sum of coefficients by which a scalar is divided
FUSECHAT = Citation(key="wan2024fusechat", authors="Wan et al.", title="FuseChat: knowledge fusion of chat models",
                    venue="arXiv", year=2024, arxiv="2408.07990")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class SceParams(Params):
    """The parameters of SCE."""

    density: float = fraction(
        1.0, open_low=True, symbol=r"\rho", label="Density",
        help="Share of each tensor's scalars that are kept: those that vary most over the experts.",
    )  # fmt: skip
    split_qkv: bool = fields.split_qkv()
    equal_below: float = real(
        0.0, low=0.0, high=1000.0, later=True, label="Equal coefficients below",
        help="Experts count equally in a tensor if the sum of their mean squares is below this.",
    )  # fmt: skip


def _select_scalars(vectors: Tensor, density: float) -> Tensor:
    """The mask (*S) of the scalars of task vectors (K, *S) that vary most over the experts; ties keep the first."""
    ordered = vectors.sort(dim=0).values  # so that rounding and ties do not depend on the order of experts
    variance = (ordered - ordered[0]).var(dim=0, correction=0).flatten()  # exactly 0 where all experts are equal
    count = int(int(variance.count_nonzero().cpu()) * density)
    mask = torch.zeros_like(variance, dtype=torch.bool)
    mask[variance.sort(descending=True, stable=True).indices[:count]] = True
    return mask.reshape(vectors.shape[1:])


def _mean_square_shares(vectors: Tensor, equal_below: float) -> list[float]:
    """Each expert's share of the sum of mean squares of the vectors (K, *S); equal shares if the sum is small or 0."""
    squares = to_numbers(*(to_float64(vector).square().sum() for vector in vectors))  # equal counts: sums suffice
    total = sum(squares)
    is_small = not total or total / vectors[0].numel() < equal_below
    return [1 / len(squares) if is_small else square / total for square in squares]


def sce(slot: Slot, params: SceParams, statistics: None) -> Tensor:
    """The task vector merged by select, calculate and erase, (K, *S) -> (*S)."""
    vectors = slot.task_vectors
    if params.density < 1.0 and len(vectors) > 1:
        vectors = vectors * _select_scalars(vectors, params.density)
    merged, weight = (torch.zeros_like(to_float64(slot.pretrained)) for _ in range(2))
    is_plus = sum((to_float64(vector) for vector in vectors), merged) >= 0  # the elected sign
    shares = _mean_square_shares(vectors, params.equal_below)
    for vector, coefficient in zip(map(to_float64, vectors), shares, strict=True):
        share = coefficient * ((vector != 0) & ((vector > 0) == is_plus)).to(vector)
        merged += share * vector
        weight += share
    return (merged / weight.clamp(min=MIN_WEIGHT)).to(slot.task_vectors)


register(
    Merge(
        key="sce",
        title="SCE",
        summary="Keeps the scalars that vary most over the experts, and averages those that agree with the elected "
        "sign, weighted by the size of each expert's change of the tensor.",
        formula=r"\theta = \theta_0 + \frac{\sum_{k : \hat\tau_k \gamma > 0} c_k \hat\tau_k}"
        r"{\sum_{k : \hat\tau_k \gamma > 0} c_k}, \quad "
        r"c_k = \frac{\lVert \hat\tau_k \rVert^2}{\sum_j \lVert \hat\tau_j \rVert^2}, \quad "
        r"\gamma = \mathrm{sign} \sum_k \hat\tau_k, \quad "
        r"\hat\tau_k = [\,\mathrm{Var}_j\, \tau_j \in \mathrm{top}_{\rho}\,] \odot \tau_k",
        cite=FUSECHAT,
        params=SceParams,
        run=sce,
        variant="Coefficients are equal only if the sum of mean squares is exactly 0 by default (mergekit: below 1e-6)."
        " Of scalars with equal variance, the first are kept. A zero sum elects plus, as in mergekit. A sum of "
        "coefficients counts as at least 1e-6. If all experts are equal, nothing varies, so a density below 1 keeps "
        "the pretrained weights.",
    )
)
