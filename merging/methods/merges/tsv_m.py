"""TSV-M: each task's leading singular vectors, made orthogonal to those of the other tasks."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from merging.base.numerics import flops
from merging.base.numerics.flops import LinearMap
from merging.base.numerics.linear_algebra import truncated_svd
from merging.methods.method import Citation, Merge, register
from merging.methods.params import Params, fraction
from merging.methods.shared import fields
from merging.methods.shared.singular_vectors import (
    MATRICES,
    is_decomposed,
    join_factors,
    kept_rank,
    matrices_to_decompose,
)
from merging.methods.slot import Slot


@dataclass(frozen=True, kw_only=True)
class TsvMParams(Params):
    """The parameters of TSV-M."""

    rank_fraction: float | None = fraction(
        None,
        open_low=True,
        optional=True,
        unset="1/K for K experts",
        symbol=r"\rho",
        label="Rank fraction",
        help="Share of each task's singular vectors that are kept; with 1/K all tasks together fill the full rank.",
    )
    scaling: float = fields.scaling(1.0, (0.0, 3.0), step=0.1)
    split_qkv: bool = fields.split_qkv()


def tsv_m(slot: Slot, params: TsvMParams, statistics: None) -> Tensor:
    """The sum of whitened, truncated task vectors, (K, m, n) -> (m, n); the mean (*S) for tensors not decomposed."""
    if not is_decomposed(slot):
        return params.scaling * slot.task_vectors.mean(dim=0)
    vectors, restore = matrices_to_decompose(slot)  # smaller ones for known low-rank factors; ``restore`` expands
    rank = kept_rank(min(slot.pretrained.shape), len(vectors), params.rank_fraction)
    task_factors = []
    for index, vector in enumerate(vectors):
        task_factors.append(truncated_svd(vector, rank))
        slot.report_share((index + 1) / (len(vectors) + 2))  # the two polar factors take about as long as two tasks
    joined = join_factors(task_factors)
    return restore(params.scaling * (joined.left * joined.values) @ joined.right).to(slot.task_vectors)


def _algebra(params: TsvMParams, matrix: LinearMap) -> float:
    rank = kept_rank(matrix.short, matrix.tasks, params.rank_fraction)
    joined_rank = matrix.tasks * rank
    polar_factors = flops.polar(matrix.outputs, joined_rank) + flops.polar(joined_rank, matrix.inputs)
    decompositions = matrix.tasks * flops.truncated_svd(matrix.outputs, matrix.inputs, rank)
    return decompositions + polar_factors + flops.product(matrix.outputs, joined_rank, matrix.inputs)


register(
    Merge(
        key="tsv_m",
        title="TSV-M",
        summary="Keeps each task vector's largest singular values and decorrelates the tasks' singular vectors.",
        formula=r"\theta = \theta_0 + \lambda\, U_\perp\, \mathrm{diag}(\sigma_1 \cdots \sigma_K)\, V_\perp^\top, "
        r"\quad U_\perp = \mathrm{polar}[U_1 \cdots U_K], \quad V_\perp = \mathrm{polar}[V_1 \cdots V_K], \quad "
        r"\tau_k \approx U_k\, \mathrm{diag}(\sigma_k)\, V_k^\top, \quad \mathrm{rank} = \lfloor \rho\, r \rfloor",
        cite=Citation(
            key="gargiulo2025tsv",
            authors="Gargiulo et al.",
            title="Task singular vectors: reducing task interference in model merging",
            venue="CVPR",
            year=2025,
            arxiv="2412.00081",
        ),
        params=TsvMParams,
        elementwise=lambda params, parameter: parameter.role not in MATRICES,
        run=tsv_m,
        in_factors=True,
        algebra=_algebra,
        variant="Applies to every two-dimensional tensor in its stored orientation, including the positional embedding "
        "and the projection; attention's q, k and v are one matrix unless split_qkv is on, which gives another result. "
        "Other tensors are the mean of the task vectors. Singular vectors of zero singular values are left out (polar "
        "factors over the nonzero spectrum); published code keeps the arbitrary vectors of its solver.",
    )
)
