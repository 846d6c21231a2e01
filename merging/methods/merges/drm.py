"""DRM: decompose all tasks in one space, renormalize their basis vectors, then prune, elect and merge in it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from merging.base.numerics.drm_space import average_rows, prune_rows
from merging.base.numerics.flops import LinearMap, eigen, product, symmetric_product
from merging.base.numerics.linear_algebra import left_basis
from merging.base.numerics.low_rank import low_rank_basis, project_on_basis
from merging.methods.method import Citation, Merge, register
from merging.methods.params import Params, choice, flag, fraction
from merging.methods.shared import fields
from merging.methods.shared.least_squares import as_matrices, to_stored_layout
from merging.methods.slot import Slot
from merging.models.families import LINEAR_MAPS


@dataclass(frozen=True, kw_only=True)
class DrmParams(Params):
    """The parameters of DRM."""

    direction: str = choice(
        "horizontal",
        "vertical",
        label="Direction",
        help="Share the output space (DRM-H: matrices side by side) or the input space (DRM-V: on top of each other).",
    )
    density: float = fraction(
        0.2,
        open_low=True,
        slider=(0.05, 1),
        symbol=r"\rho",
        label="Density",
        help="Share of entries that are kept, largest first.",
    )
    scaling: float = fields.scaling(1.0, (0.5, 2.0))
    rank_tol: float = fraction(
        0.01,
        slider=(0.0, 0.1),
        step=0.005,
        symbol=r"\epsilon",
        label="Rank cut",
        help="Directions whose singular value is at most this share of the largest are dropped; 0 drops null ones.",
    )
    renorm: bool = flag(
        True, label="Renormalize", help="Prune by the entries of each task's basis vectors scaled to unit length."
    )
    elect: bool = flag(
        True, label="Elect signs", help="Drop entries whose sign differs from that of their sum over the tasks."
    )
    disjoint: bool = flag(
        True, label="Disjoint mean", help="Divide by the number of entries that are left, not by the number of tasks."
    )
    pruning: str = choice(
        "joint",
        "individual",
        label="Pruning",
        help="Rank the entries of all tasks together, or of each task separately.",
    )
    split_qkv: bool = fields.split_qkv()


def drm(slot: Slot, params: DrmParams, statistics: None) -> Tensor:
    """The task vector merged in the joint space, (K, *S) -> (*S); the mean for tensors that are not linear maps."""
    if slot.role not in LINEAR_MAPS:
        return params.scaling * slot.task_vectors.mean(dim=0)
    vertical = params.direction == "vertical"  # the same steps on the transposed matrices
    if (factors := slot.small_factors) is not None:  # known products of thin matrices, which save work
        oriented = [factor.mT for factor in factors] if vertical else factors
        basis = low_rank_basis(oriented, params.rank_tol)
        entries, basis = project_on_basis(basis, oriented).to(slot.task_vectors), basis.to(slot.task_vectors)
    else:
        matrices = as_matrices(slot).mT if vertical else as_matrices(slot)
        basis = left_basis(matrices, params.rank_tol).to(matrices)
        entries = basis.T @ matrices
    slot.report_share(0.5)  # finding the basis takes about half of the time
    merged = params.scaling * basis @ _merge_entries(entries, params)
    return to_stored_layout(merged.T if vertical else merged, slot)


def _merge_entries(entries: Tensor, params: DrmParams) -> Tensor:
    """The entries (K, r, n) of the tasks in the joint space, pruned, elected and averaged: (r, n)."""
    merged = torch.empty_like(entries[0])
    for rows, part in prune_rows(entries, params.density, params.renorm, joint=params.pruning == "joint"):
        merged[rows] = average_rows(part, params.elect, params.disjoint)
    return merged


def _algebra(params: DrmParams, matrix: LinearMap) -> float:
    height, width = matrix.outputs, matrix.inputs
    if params.direction == "vertical":
        height, width = width, height
    projections = (matrix.tasks + 1) * product(height, height, width)  # into the space, and back
    return symmetric_product(height, matrix.tasks * width) + eigen(height) + projections


register(
    Merge(
        key="drm",
        title="DRM",
        summary="Merges in the space that all tasks' matrices share, with each task's basis vectors renormalized.",
        formula=r"[\Delta_1 \cdots \Delta_K] = U \Sigma V^\top, \quad "
        r"M_k = \mathrm{top}_{\rho}(\tilde V_k^\top) \odot U^\top \Delta_k, \quad "
        r"\theta = \theta_0 + \lambda\, U \sum_{k : M_k \gamma > 0} M_k \,/\, |\{k : M_k \gamma > 0\}|, \quad "
        r"\gamma = \mathrm{sign} \sum_k M_k, \quad \sigma_i > \epsilon\, \sigma_1",
        cite=Citation(
            key="chaichana2025drm",
            authors="Chaichana et al.",
            title="Decom-Renorm-Merge: model merging on the right space improves multitasking",
            venue="arXiv",
            year=2025,
            arxiv="2505.23117",
        ),
        params=DrmParams,
        elementwise=lambda params, parameter: parameter.role not in LINEAR_MAPS,
        run=drm,
        in_factors=True,
        algebra=_algebra,
        variant="Applies to linear weights and the output projection, which is oriented as a linear weight; other "
        "tensors are the mean of the task vectors. The rank cut is the released code's: the paper cuts nothing, so "
        "near-null directions use up part of the density. round(ρN) + 1 of N entries and ties are kept; density 1 "
        "keeps all, still in the joint space. A vote of exactly zero drops its entries. Without the disjoint mean, "
        "sums are divided by the number of tasks. Attention's q, k and v are one matrix unless split_qkv is on, which "
        "gives another result.",
    )
)
