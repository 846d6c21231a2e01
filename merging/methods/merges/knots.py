"""KnOTS: TIES on what the tasks have beside each singular direction that they share."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from merging.base.numerics.flops import LinearMap, eigen, product, symmetric_product
from merging.base.numerics.linear_algebra import RANK_TOLERANCE, left_basis, to_float64
from merging.base.numerics.low_rank import low_rank_basis, project_on_basis
from merging.methods.method import Citation, Merge, register
from merging.methods.shared.elected_entries import PLAIN, EntryParams, merge_entries
from merging.methods.shared.singular_vectors import is_decomposed
from merging.methods.slot import Slot


@dataclass(frozen=True, kw_only=True)
class KnotsParams(EntryParams):
    """The parameters of KnOTS."""


def knots(slot: Slot, params: KnotsParams, statistics: None) -> Tensor:
    """The task vector merged in the tasks' joint directions, (K, *S) -> (*S)."""
    if params.rule == PLAIN or not is_decomposed(slot):  # a plain sum is the same in all coordinates
        return params.scaling * merge_entries(slot.task_vectors, params)
    if (factors := slot.small_factors) is not None:  # known products of thin matrices, which save work
        basis = low_rank_basis(factors, RANK_TOLERANCE)
        entries = project_on_basis(basis, factors)
    else:
        matrices = to_float64(slot.task_vectors)
        basis = left_basis(matrices, RANK_TOLERANCE)
        entries = basis.T @ matrices  # S V_k, the singular values included
    slot.report_share(0.5)  # finding the basis takes about half of the time
    return (params.scaling * basis @ merge_entries(entries, params)).to(slot.task_vectors)


def _algebra(params: KnotsParams, matrix: LinearMap) -> float:
    if params.rule == PLAIN:
        return 0.0
    height, width = matrix.outputs, matrix.inputs
    projections = (matrix.tasks + 1) * product(height, height, width)  # into the directions, and back
    return symmetric_product(height, matrix.tasks * width) + eigen(height) + projections


register(
    Merge(
        key="knots",
        title="KnOTS",
        summary="Decomposes all tasks' matrices side by side, and merges by TIES what the tasks have beside each of "
        "the singular directions that they then share.",
        formula=r"[\Delta_1 \cdots \Delta_K] = U S\, [V_1^\top \cdots V_K^\top], \quad "
        r"\theta = \theta_0 + \lambda\, U\, \mathrm{TIES}_{\rho}(S V_1^\top, \dots, S V_K^\top)",
        cite=Citation(
            key="stoica2025knots",
            authors="Stoica et al.",
            title="Model merging with SVD to tie the KnOTS",
            venue="ICLR",
            year=2025,
            arxiv="2410.19735",
        ),
        params=KnotsParams,
        elementwise=lambda params, parameter: params.rule == PLAIN,
        run=knots,
        in_factors=True,
        algebra=_algebra,
        variant="The paper merges LoRA adapters; this takes every two-dimensional tensor in its stored orientation, "
        "and other tensors by the same rule, scalar by scalar. The parts are scaled by the singular values before the "
        "trim, as in the authors' code. It trims over the whole model, this trims tensor by tensor. Directions below "
        "1e-10 of the largest singular value are left out (the authors': below 1e-5). An exact tie elects no sign, as "
        "the signs of singular vectors are arbitrary.",
    )
)
