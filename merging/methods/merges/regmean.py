"""RegMean: per linear weight, the least-squares fit to every expert's outputs on its own inputs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from merging.base.numerics.flops import LinearMap, cholesky, gram_products, product
from merging.base.numerics.linear_algebra import to_float64
from merging.methods.method import Citation, Merge, Needs, register
from merging.methods.params import Params, fraction
from merging.methods.shared.least_squares import NormalEquations, as_matrices, as_stored, normal_equations, spectrum
from merging.methods.slot import Slot
from merging.models.families import ROWWISE_ROLES, Role

EPS, TINY = torch.finfo(torch.float64).eps, torch.finfo(torch.float64).tiny
ROUNDS = 6  # of power iteration, for an estimate of the condition number


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

    sums = normal_equations(slot, inputs, params.alpha)
    columns = _solve_shrunk(slot, sums) if params.alpha < 1 else None
    if columns is None:
        columns = _solve_least_norm(slot, sums)
    return as_stored(columns.T.to(slot.task_vectors), slot)


def _solve_shrunk(slot: Slot, sums: NormalEquations) -> Tensor | None:
    """The solution (d_in, d_out) for a positive definite matrix; None if rounding has made the matrix indefinite."""
    gram, unused = sums.gram, sums.gram.diagonal() == 0
    if unused.any().cpu():  # an unused input has a row of zeros on both sides, so its solution is 0
        gram = gram + torch.diag(unused * gram.diagonal().mean().clamp(min=TINY))
    factor, failed = torch.linalg.cholesky_ex(gram)
    if failed.cpu():
        return None
    _note_solution(slot, sums, len(gram) - int(unused.sum().cpu()), _estimate_condition(gram, factor), True, 0.0)
    return torch.cholesky_solve(sums.target, factor)


def _solve_least_norm(slot: Slot, sums: NormalEquations) -> Tensor:
    """The pseudo-inverse solution (d_in, d_out) for whole weights, minus the pretrained weights.

    Directions that no exemplar excites get weight 0, so their pretrained weights are lost.
    """
    values, vectors = spectrum(sums.gram)
    chosen = values > len(values) * EPS * values[-1]
    basis, used = vectors[:, chosen], values[chosen]
    pretrained = to_float64(as_matrices(slot, slot.pretrained[None])[0]).T
    lost = torch.zeros_like(pretrained) if chosen.all().cpu() else pretrained - basis @ (basis.T @ pretrained)
    share = float((lost.square().sum() / pretrained.square().sum().clamp(min=TINY)).cpu())
    _note_solution(slot, sums, len(used), float((used[-1] / used[0]).cpu()) if len(used) else 1.0, False, share)
    return basis @ ((basis.T @ sums.target) / used[:, None]) - lost


def _estimate_condition(gram: Tensor, factor: Tensor) -> float:
    """The largest eigenvalue over the smallest of a Gram matrix (d, d), estimated from below by power iteration.

    ``factor`` (d, d) is its Cholesky factor. The iteration starts from a fixed vector.
    """
    top = bottom = torch.linspace(1, 2, len(gram), dtype=gram.dtype, device=gram.device)[:, None]
    for _ in range(ROUNDS):
        top, bottom = gram @ (top / top.norm()), torch.cholesky_solve(bottom / bottom.norm(), factor)
    return float((top.norm() * bottom.norm()).cpu())


def _note_solution(slot: Slot, sums: NormalEquations, rank: int, condition: float, at_least: bool, lost: float) -> None:
    """Note a row of the table "regmean": how well the exemplars determine the weights.

    ``condition`` is the condition number of the inverted matrix, in the directions that are used; if
    ``condition_is_at_least`` is true, it is an estimate from below. ``pretrained_lost`` is the share of the pretrained
    weights' squared norm in the other directions, which is lost.
    """
    slot.note(
        "regmean",
        rows=sums.rows,
        width=len(sums.gram),
        rank=rank,
        condition=condition,
        condition_is_at_least=at_least,
        pretrained_lost=lost,
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
        "used, so directions that no exemplar excites lose their pretrained weights, which LOT with scaling 1 keeps; "
        "the table reports the lost share. Condition numbers in the table are exact at alpha = 1; for smaller alpha "
        "they are estimates from below, so the true ones may be larger.",
    )
)
