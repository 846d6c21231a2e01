"""RegMean: per linear weight, the least-squares fit to every expert's outputs on the expert's inputs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from merging.base.numerics.flops import LinearMap, cholesky, gram_products, product
from merging.base.numerics.linear_algebra import to_float64
from merging.methods.method import Citation, Merge, Needs, register
from merging.methods.params import Params, fraction
from merging.methods.shared.least_squares import (
    NormalEquations,
    as_matrices,
    normal_equations,
    spectrum,
    to_stored_layout,
)
from merging.methods.slot import Slot
from merging.models.families import ROWWISE_ROLES, Role

EPS, TINY = torch.finfo(torch.float64).eps, torch.finfo(torch.float64).tiny
POWER_ITERATIONS = 6  # for the estimate of the condition number


@dataclass(frozen=True, kw_only=True)
class RegmeanParams(Params):
    """The parameters of RegMean."""

    alpha: float = fraction(
        0.95,
        symbol=r"\alpha",
        label="Off-diagonal share",
        help="Factor on the off-diagonal entries of the inputs' Gram matrices; below 1 these are always invertible.",
    )


def regmean(slot: Slot, params: RegmeanParams, statistics: None) -> Tensor:
    """The task vector of the regression's weights, (K, *S) -> (*S); the mean for tensors without known inputs."""
    inputs = slot.inputs if slot.role in {Role.LINEAR, Role.PROJECTION} else None
    if inputs is None:
        return slot.task_vectors.mean(dim=0)

    equations = normal_equations(slot, inputs, params.alpha)
    solution = _solve_shrunk(slot, equations) if params.alpha < 1 else None
    if solution is None:
        solution = _solve_least_norm(slot, equations)
    return to_stored_layout(solution.T.to(slot.task_vectors), slot)


def _solve_shrunk(slot: Slot, equations: NormalEquations) -> Tensor | None:
    """The solution (d_in, d_out) for a Gram matrix shrunk by ``alpha``; None if rounding has made it indefinite."""
    gram, unused = equations.gram, equations.gram.diagonal() == 0
    if (
        unused.any().cpu()
    ):  # an unused input has zeros in its row of both sides: any diagonal entry gives the solution 0
        gram = gram + torch.diag(unused * gram.diagonal().mean().clamp(min=TINY))
    factor, error_code = torch.linalg.cholesky_ex(gram)
    if error_code.cpu():
        return None
    rank = len(gram) - int(unused.sum().cpu())
    _note_solution(slot, equations, rank, _estimate_condition(gram, factor), is_lower_bound=True, lost_share=0.0)
    return torch.cholesky_solve(equations.target, factor)


def _solve_least_norm(slot: Slot, equations: NormalEquations) -> Tensor:
    """The pseudo-inverse solution (d_in, d_out) for the merged weights, minus the pretrained weights.

    Directions of the inputs that occur in no exemplar get weight 0, so their pretrained weights are lost.
    """
    values, vectors = spectrum(equations.gram)
    nonzero = values > len(values) * EPS * values[-1]  # relative to the largest, since the values ascend
    basis, used = vectors[:, nonzero], values[nonzero]
    pretrained = to_float64(as_matrices(slot, slot.pretrained[None])[0]).T
    lost_part = torch.zeros_like(pretrained) if nonzero.all().cpu() else pretrained - basis @ (basis.T @ pretrained)
    lost_share = float((lost_part.square().sum() / pretrained.square().sum().clamp(min=TINY)).cpu())
    condition = float((used[-1] / used[0]).cpu()) if len(used) else 1.0
    _note_solution(slot, equations, len(used), condition, is_lower_bound=False, lost_share=lost_share)
    return basis @ ((basis.T @ equations.target) / used[:, None]) - lost_part


def _estimate_condition(gram: Tensor, factor: Tensor) -> float:
    """A lower bound on the condition number of a Gram matrix (d, d), by power iteration from a fixed vector.

    The condition number is the largest eigenvalue divided by the smallest. ``factor`` (d, d) is the matrix's Cholesky
    factor.
    """
    top = bottom = torch.linspace(1, 2, len(gram), dtype=gram.dtype, device=gram.device)[:, None]
    for _ in range(POWER_ITERATIONS):
        top, bottom = gram @ (top / top.norm()), torch.cholesky_solve(bottom / bottom.norm(), factor)
    return float((top.norm() * bottom.norm()).cpu())


def _note_solution(
    slot: Slot, equations: NormalEquations, rank: int, condition: float, *, is_lower_bound: bool, lost_share: float
) -> None:
    """Note a row of the table "regmean": how well the exemplars determine the weights.

    ``condition`` is the condition number of the inverted matrix, in the ``rank`` directions that are used, or a lower
    bound on it. ``lost_share`` is the share of the pretrained weights' squared norm in the other directions, which is
    lost.
    """
    slot.note(
        "regmean",
        rows=equations.row_count,
        width=len(equations.gram),
        rank=rank,
        condition=condition,
        condition_is_at_least=is_lower_bound,
        pretrained_lost=lost_share,
    )


def count_flops(params: RegmeanParams, matrix: LinearMap) -> float:
    """Floating-point operations of the regression of one linear map."""
    solving = cholesky(matrix.inputs) + product(matrix.outputs, matrix.inputs, matrix.inputs)
    return gram_products(matrix) + solving


register(
    Merge(
        key="regmean",
        title="RegMean",
        summary="Solves, per linear weight, for the weights whose outputs are closest to the experts' on exemplars.",
        formula=r"\theta^\top = \Big(\sum_k \hat G_k\Big)^{-1} \sum_k \hat G_k \theta_k^\top, \quad "
        r"\hat G_k = \alpha\, X_k^\top X_k + (1 - \alpha)\, \mathrm{diag}(X_k^\top X_k)",
        cite=Citation(
            key="jin2023regmean",
            authors="Jin et al.",
            title="Dataless knowledge fusion by merging weights of language models",
            venue="ICLR",
            year=2023,
            arxiv="2212.09849",
        ),
        params=RegmeanParams,
        elementwise=lambda params, parameter: parameter.role in ROWWISE_ROLES,
        needs=Needs.EXEMPLARS,
        run=regmean,
        algebra=count_flops,
        variant="Applies to linear weights and the output projection; other tensors are the mean. The regression uses "
        "task vectors in float64, which gives the same weights if the matrix is invertible. Below alpha = 1 it is, and "
        "inputs that are always zero keep the pretrained weights. At alpha = 1 the pseudo-inverse for whole weights is "
        "used, so directions that occur in no exemplar lose their pretrained weights, which LOT with scaling 1 keeps; "
        "the table reports the lost share. Condition numbers in the table are exact at alpha = 1; for smaller alpha "
        "they are lower bounds.",
    )
)
