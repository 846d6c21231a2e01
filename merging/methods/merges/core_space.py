"""Core Space: TIES on the small matrices that represent the task vectors in joint bases of their factors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from merging.base.numerics.flops import LinearMap, eigen, product, symmetric_product
from merging.base.numerics.linear_algebra import RANK_TOLERANCE, left_basis, to_float64
from merging.base.numerics.low_rank import LowRank
from merging.methods.method import Citation, Merge, register
from merging.methods.shared.elected_entries import PLAIN, EntryParams, merge_entries
from merging.methods.shared.singular_vectors import is_decomposed
from merging.methods.slot import Slot


@dataclass(frozen=True, kw_only=True)
class CoreSpaceParams(EntryParams):
    """The parameters of Core Space."""


def core_space(slot: Slot, params: CoreSpaceParams, statistics: None) -> Tensor:
    """The task vector merged in the joint bases of the tasks' factors, (K, *S) -> (*S)."""
    if params.rule == PLAIN or not is_decomposed(slot):  # a plain sum is the same in all coordinates
        return params.scaling * merge_entries(slot.task_vectors, params)
    if slot.factors is not None:
        left, right = find_joint_bases(slot.factors)
        cores = torch.stack([(left.T @ factor.up) @ (factor.down @ right) for factor in slot.factors])
    else:
        matrices = to_float64(slot.task_vectors)
        left, right = left_basis(matrices, RANK_TOLERANCE), left_basis(matrices.mT, RANK_TOLERANCE)
        cores = left.T @ matrices @ right
    slot.report_share(0.8)  # finding the bases takes most of the time
    merged = params.scaling * merge_entries(cores, params)
    return (left @ merged @ right.T).to(slot.task_vectors)


def find_joint_bases(factors: Sequence[LowRank]) -> tuple[Tensor, Tensor]:
    """The singular vectors (m, a) of all ``up`` side by side, and (n, b) of all ``down`` on top of each other."""
    left = left_basis(torch.cat([factor.up for factor in factors], dim=1)[None], RANK_TOLERANCE)
    right = left_basis(torch.cat([factor.down for factor in factors]).mT[None], RANK_TOLERANCE)
    return left, right


def _algebra(params: CoreSpaceParams, matrix: LinearMap) -> float:
    if params.rule == PLAIN:
        return 0.0
    height, width = matrix.outputs, matrix.inputs
    grams = symmetric_product(height, matrix.tasks * width) + symmetric_product(width, matrix.tasks * height)
    projections = (matrix.tasks + 1) * (product(height, height, width) + product(height, width, width))
    return grams + eigen(height) + eigen(width) + projections


register(
    Merge(
        key="core_space",
        title="Core Space",
        summary="Writes the tasks' low-rank changes as small matrices in joint bases of all their factors, and merges "
        "these by TIES. Made for teams of LoRA adapters.",
        formula=r"\Delta_k = B_k A_k, \quad M_k = U_B^\top B_k A_k V_A, \quad "
        r"\theta = \theta_0 + \lambda\, U_B\, \mathrm{TIES}_{\rho}(M_1, \dots, M_K)\, V_A^\top, \quad "
        r"[B_1 \cdots B_K] = U_B \Sigma_B W_B^\top, \quad [A_1^\top \cdots A_K^\top] = V_A \Sigma_A W_A^\top",
        cite=Citation(
            key="panariello2025core",
            authors="Panariello et al.",
            title="Accurate and efficient low-rank model merging in core space",
            venue="NeurIPS",
            year=2025,
            arxiv="2509.17786",
        ),
        params=CoreSpaceParams,
        elementwise=lambda params, parameter: params.rule == PLAIN,
        run=core_space,
        in_factors=True,
        algebra=_algebra,
        variant="The factors are those of LoRA files whose adapters apply to the pretrained model, with the scale in "
        "B. Without them, and after an edit, the bases are the singular vectors of the whole matrices side by side and "
        "on top of each other: the same spaces, but other axes, in which TIES decides otherwise. The paper also merges "
        "the small matrices by other methods, and merges adapted layers only; this takes every two-dimensional tensor, "
        "and other tensors by the same rule, scalar by scalar. It trims tensor by tensor; an exact tie elects no sign.",
    )
)
