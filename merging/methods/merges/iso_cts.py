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

MIN_RESIDUAL = 1e-10  # a residual whose norm is at most this share of its task vector's is rounding


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
    vectors, restore = matrices_to_decompose(slot)  # smaller ones for known low-rank factors; ``restore`` expands
    full_rank = min(slot.pretrained.shape)
    common_count, task_count = direction_counts(full_rank, len(vectors), params.common_fraction)
    common = truncated_svd(to_float64(vectors).sum(dim=0), common_count)
    complement, task_factors = _complement_basis(common.left, vectors.shape[2]), []
    for index, vector in enumerate(vectors):
        task_factors.append(_residual_svd(to_float64(vector), common.left, complement, task_count))
        slot.report_share((index + 1) / (len(vectors) + 2))  # the two polar factors take about as long as two tasks
    # The tasks' left vectors are already orthogonal to the common ones, so only the tasks' need a polar factor.
    left = torch.cat([polar_factor(torch.cat([factors.left for factors in task_factors], dim=1)), common.left], dim=1)
    right = polar_factor(torch.cat([*(factors.right for factors in task_factors), common.right]))
    level = torch.cat([*(factors.values for factors in task_factors), common.values]).sum() / max(full_rank, 1)
    return restore(params.scaling * level * left @ right).to(slot.task_vectors)


def direction_counts(full_rank: int, experts: int, common_fraction: float) -> tuple[int, int]:
    """The numbers of common directions and of directions per task; over all tasks they add up to ``full_rank``."""
    common = int(full_rank * common_fraction)
    per_task = round((full_rank - common) / experts)
    if per_task * experts > full_rank:
        per_task = (full_rank - common) // experts
    return full_rank - per_task * experts, per_task


def _complement_basis(common: Tensor, width: int) -> Tensor | None:
    """A basis (m, m - r) of the complement of the common columns (m, r), if task vectors (m, n) are not tall."""
    return torch.linalg.qr(common, mode="complete").Q[:, common.shape[1] :] if len(common) <= width else None


def _residual_svd(vector: Tensor, common: Tensor, complement: Tensor | None, count: int) -> Factors:
    """The largest singular values of a task vector (m, n) outside the span of the common columns (m, r).

    ``complement`` is a basis (m, m - r) of the complement of that span, if task vectors are not tall.
    """
    # In the basis of the complement, the residual has fewer rows.
    residual = vector - common @ (common.T @ vector) if complement is None else complement.T @ vector
    if (residual.norm() <= MIN_RESIDUAL * vector.norm()).cpu():
        residual = torch.zeros_like(residual)
    factors = truncated_svd(residual, count)
    return factors if complement is None else Factors(complement @ factors.left, factors.values, factors.right)


def _algebra(params: IsoCtsParams, matrix: LinearMap) -> float:
    outputs, inputs, full_rank = matrix.outputs, matrix.inputs, matrix.short
    common, per_task = direction_counts(full_rank, matrix.tasks, params.common_fraction)
    if outputs <= inputs:  # in a basis of the complement
        complement, basis = outputs - common, 2 * flops.product(outputs, outputs, common)
        residual = flops.product(complement, outputs, inputs) + flops.truncated_svd(complement, inputs, per_task)
    else:
        basis = 0.0
        residual = 2 * flops.product(outputs, common, inputs) + flops.truncated_svd(outputs, inputs, per_task)
    joined = flops.polar(outputs, matrix.tasks * per_task) + flops.polar(full_rank, inputs)
    joined += flops.product(outputs, full_rank, inputs)
    return flops.truncated_svd(outputs, inputs, common) + basis + matrix.tasks * residual + joined


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
