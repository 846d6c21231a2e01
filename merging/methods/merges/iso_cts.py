"""Iso-CTS: a flat spectrum over the common directions of the sum and the directions that single tasks add."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from merging.base.numerics import flops
from merging.base.numerics.flops import LinearMap
from merging.base.numerics.linear_algebra import Factors, polar_factor, to_float64, truncated_svd
from merging.methods.merges.iso_c import IsoCParams
from merging.methods.method import Merge, register
from merging.methods.params import fraction
from merging.methods.shared import citations
from merging.methods.shared.singular_vectors import MATRICES, is_decomposed, matrices_to_decompose
from merging.methods.slot import Slot

NOTHING = 1e-10  # a residual below this share of its task vector is rounding


@dataclass(frozen=True, kw_only=True)
class IsoCtsParams(IsoCParams):
    """The parameters of Iso-CTS."""

    common_fraction: float = fraction(
        0.8,
        symbol=r"\kappa",
        label="Common fraction",
        help="Share of the directions taken from the sum of all task vectors; the others come from single tasks.",
    )


def iso_cts(slot: Slot, params: IsoCtsParams, statistics: None) -> Tensor:
    """Common and task directions at one level, (K, m, n) -> (m, n); the mean (*S) for tensors not decomposed."""
    if not is_decomposed(slot):
        return params.scaling * slot.task_vectors.mean(dim=0)
    vectors, restore = matrices_to_decompose(slot)
    full = min(slot.pretrained.shape)
    common_count, own_count = direction_counts(full, len(vectors), params.common_fraction)
    common = truncated_svd(to_float64(vectors).sum(dim=0), common_count)
    outside, own = _complement_basis(common.left, vectors.shape[2]), []
    for index, vector in enumerate(vectors):
        own.append(_residual_svd(to_float64(vector), common.left, outside, own_count))
        slot.report_share((index + 1) / (len(vectors) + 2))
    # The tasks' left vectors are already orthogonal to the common ones, so only the tasks' need a polar factor.
    left = torch.cat([polar_factor(torch.cat([part.left for part in own], dim=1)), common.left], dim=1)
    right = polar_factor(torch.cat([*(part.right for part in own), common.right]))
    level = torch.cat([*(part.values for part in own), common.values]).sum() / max(full, 1)
    return restore(params.scaling * level * left @ right).to(slot.task_vectors)


def direction_counts(full: int, experts: int, common_fraction: float) -> tuple[int, int]:
    """The numbers of common directions and of directions per task; over all tasks they add up to ``full``."""
    common = int(full * common_fraction)
    own = round((full - common) / experts)
    if own * experts > full:
        own = (full - common) // experts
    return full - own * experts, own


def _complement_basis(common: Tensor, width: int) -> Tensor | None:
    """A basis (m, m - r) of the complement of the common columns (m, r), if task vectors (m, n) are not tall."""
    return torch.linalg.qr(common, mode="complete").Q[:, common.shape[1] :] if len(common) <= width else None


def _residual_svd(vector: Tensor, common: Tensor, outside: Tensor | None, count: int) -> Factors:
    """The largest singular values of a task vector (m, n) outside the span of the common columns (m, r).

    ``outside`` is the basis (m, m - r) of the complement, if there is one.
    """
    residual = vector - common @ (common.T @ vector) if outside is None else outside.T @ vector  # fewer rows
    if (residual.norm() <= NOTHING * vector.norm()).cpu():
        residual = torch.zeros_like(residual)
    factors = truncated_svd(residual, count)
    return factors if outside is None else Factors(outside @ factors.left, factors.values, factors.right)


def _algebra(params: IsoCtsParams, matrix: LinearMap) -> float:
    out, into, full = matrix.outputs, matrix.inputs, matrix.short
    common, own = direction_counts(full, matrix.tasks, params.common_fraction)
    if out <= into:  # in a basis of the complement
        complement, basis = out - common, 2 * flops.product(out, out, common)
        residual = flops.product(complement, out, into) + flops.truncated_svd(complement, into, own)
    else:
        basis, residual = 0.0, 2 * flops.product(out, common, into) + flops.truncated_svd(out, into, own)
    joined = flops.polar(out, matrix.tasks * own) + flops.polar(full, into) + flops.product(out, full, into)
    return flops.truncated_svd(out, into, common) + basis + matrix.tasks * residual + joined


register(
    Merge(
        key="iso_cts",
        title="Iso-CTS",
        summary="Flattens the spectrum of the sum's leading directions and of those that single tasks add to them.",
        formula=r"\theta = \theta_0 + \lambda\, \bar\sigma\, \mathrm{polar}[U_1 \cdots U_K, U_c]\, "
        r"\mathrm{polar}[V_1 \cdots V_K, V_c]^\top, \quad U_c = \mathrm{top}_{\kappa r} \sum_k \tau_k, \quad "
        r"U_k, V_k = \mathrm{top}\,(I - U_c U_c^\top)\, \tau_k",
        cite=citations.ISOTROPIC,
        params=IsoCtsParams,
        elementwise=lambda params, parameter: parameter.role not in MATRICES,
        run=iso_cts,
        in_factors=True,
        algebra=_algebra,
        variant="Applies to every two-dimensional tensor in its stored orientation: a matrix and its transpose give "
        "different results, so Hugging Face's transposed projection gives another result, and so do split q, k, v. "
        "Other tensors are the mean of the task vectors. The level averages the singular values of the sum "
        "and of the single tasks, as published. Null directions stay null; if the tasks' directions exceed the rank, "
        "their number is rounded down.",
    )
)
