"""The regression behind LOT, RegMean and CAT: a linear map that fits every expert's outputs on the expert's inputs.

Expert k contributes the Gram matrix G_k = X_kᵀX_k of the rows X_k (n_k, d_in) that enter its layer, and its task vector
T_k, in this file (d_in, d_out). Only one G_k at a time is in memory; it is added to a sum. If there are fewer rows
than inputs, rows are used in place of Gram matrices, because products with them are smaller.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from merging.base.numerics.eigen import decompose_symmetric
from merging.base.numerics.linear_algebra import lower_gram, to_float64
from merging.models.families import Role
from merging.models.tower_names import is_transposed_name

if TYPE_CHECKING:
    from merging.methods.moments import Moments
    from merging.methods.slot import Slot

RETRY_RIDGE = 1e-12  # times the mean eigenvalue: added to the diagonal if an eigen-decomposition does not converge


def as_matrices(slot: Slot, tensors: Tensor | None = None) -> Tensor:
    """Task vectors of a linear map, or other tensors (K, *S) of their layout, as matrices (K, d_out, d_in)."""
    stored = slot.task_vectors if tensors is None else tensors
    return stored.mT if _is_transposed(slot) else stored.flatten(2)


def to_stored_layout(matrix: Tensor, slot: Slot) -> Tensor:
    """The inverse of ``as_matrices``: matrices (..., d_out, d_in) in the slot's stored shape (..., *S)."""
    return matrix.mT if _is_transposed(slot) else matrix.reshape(*matrix.shape[:-2], *slot.pretrained.shape)


def _is_transposed(slot: Slot) -> bool:
    return slot.role == Role.PROJECTION and is_transposed_name(slot.name)


@dataclass(frozen=True, slots=True)
class NormalEquations:
    """Σ_k ‖X_k (T - T_k)‖² as a function of T: tr(Tᵀ gram T) - 2 tr(Tᵀ target) + zero_value, in float64."""

    gram: Tensor  # Σ G_k (d_in, d_in)
    target: Tensor  # Σ G_k T_k (d_in, d_out)
    zero_value: float  # Σ ‖X_k T_k‖², the value for T = 0
    row_count: int  # over all experts

    def value(self, weights: Tensor) -> float:
        """The sum Σ_k ‖X_k (T - T_k)‖² for a map T (d_in, d_out)."""
        return max(0.0, self.zero_value + float((weights * (self.gram @ weights - 2 * self.target)).sum().cpu()))

    def least_value(self, solution: Tensor) -> float:
        """``value`` of a map (d_in, d_out) that solves the equations, at least on a span of eigenvectors."""
        return max(0.0, self.zero_value - float((solution * self.target).sum().cpu()))

    def spectrum(self) -> tuple[Tensor, Tensor]:
        """The eigenvalues (d_in,) of Σ G_k, ascending, and its eigenvectors (d_in, d_in)."""
        return spectrum(self.gram)

    def solution(self, values: Tensor, vectors: Tensor) -> Tensor:
        """The solution (d_in, d_out) on the span of eigenvectors (d_in, r) with eigenvalues (r,)."""
        weights: Tensor = vectors @ ((vectors.T @ self.target) / values[:, None])
        return weights


@dataclass(frozen=True, slots=True)
class FewRows:
    """``NormalEquations`` for fewer rows than inputs: ‖X T - Y‖² with all rows X, and Y_k = X_k T_k, in float64.

    The eigenvalues of X Xᵀ are those of Σ G_k that are not zero.
    """

    inputs: Tensor  # X (rows, d_in)
    outputs: Tensor  # Y (rows, d_out)

    @property
    def zero_value(self) -> float:
        """Σ ‖X_k T_k‖², the value for T = 0."""
        return float(self.outputs.square().sum().cpu())

    def value(self, weights: Tensor) -> float:
        """The sum Σ_k ‖X_k (T - T_k)‖² for a map T (d_in, d_out)."""
        return float((self.inputs @ weights - self.outputs).square().sum().cpu())

    def least_value(self, solution: Tensor) -> float:
        """``value`` of a map (d_in, d_out) that solves the equations, at least on a span of eigenvectors."""
        return self.value(solution)

    def spectrum(self) -> tuple[Tensor, Tensor]:
        """The eigenvalues (rows,) of X Xᵀ, ascending, and its eigenvectors (rows, rows)."""
        return spectrum(lower_gram(self.inputs[None]))

    def solution(self, values: Tensor, vectors: Tensor) -> Tensor:
        """The solution (d_in, d_out) on the span of eigenvectors (rows, r) with eigenvalues (r,)."""
        weights: Tensor = self.inputs.T @ (vectors @ ((vectors.T @ self.outputs) / values[:, None]))
        return weights


def least_squares(slot: Slot, inputs: tuple[Moments, ...]) -> NormalEquations | FewRows:
    """The regression of a slot, in the form that is smaller."""
    rows = [moments.rows for moments in inputs if moments.rows is not None]
    if len(rows) < len(inputs) or sum(map(len, rows)) >= inputs[0].width:
        return normal_equations(slot, inputs)
    exact = [to_float64(expert_rows) for expert_rows in rows]
    outputs = [expert_rows @ to_float64(vector).T for expert_rows, vector in zip(exact, as_matrices(slot), strict=True)]
    return FewRows(torch.cat(exact), torch.cat(outputs))


def normal_equations(slot: Slot, inputs: tuple[Moments, ...], alpha: float = 1.0) -> NormalEquations:
    """The normal equations of a slot, with the off-diagonal entries of every G_k multiplied by ``alpha``."""
    equations: NormalEquations | None = None
    for k, (moments, vector) in enumerate(zip(inputs, as_matrices(slot), strict=True)):
        gram, rows = moments.gram(), to_float64(vector)  # rows of T_kᵀ (d_out, d_in)
        target_rows = _multiply_gram(moments, gram, rows)
        if alpha < 1:
            diagonal = gram.diagonal().clone()
            target_rows.mul_(alpha).addcmul_(diagonal, rows, value=1 - alpha)
            gram.mul_(alpha).diagonal().copy_(diagonal)
        target, zero_value = target_rows.T, float((rows * target_rows).sum().cpu())
        if equations is None:
            equations = NormalEquations(gram, target, zero_value, moments.count)
        else:
            equations = NormalEquations(
                equations.gram.add_(gram),
                equations.target.add_(target),
                equations.zero_value + zero_value,
                equations.row_count + moments.count,
            )
        slot.report_share((k + 1) / (len(inputs) + 2))  # solving takes about as long as two experts
    assert equations is not None
    return equations


def _multiply_gram(moments: Moments, gram: Tensor, target: Tensor) -> Tensor:
    """Tᵀ G (d_out, d_in) for Tᵀ (d_out, d_in), from the inputs if two products with them cost less than one with G."""
    inputs = moments.rows
    if inputs is None or 2 * len(inputs) >= moments.width:
        return target @ gram
    exact = to_float64(inputs)
    return (target @ exact.T) @ exact


def spectrum(gram: Tensor, count: int | None = None) -> tuple[Tensor, Tensor]:
    """Eigenvalues (r,), ascending, and eigenvectors (d, r) of a symmetric matrix (d, d): ``count`` largest, or all."""
    try:
        return decompose_symmetric(gram, count)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]  # happens occasionally on accelerators
        ridge = RETRY_RIDGE * gram.diagonal().mean()
        return decompose_symmetric(gram + ridge * torch.eye(len(gram), dtype=gram.dtype, device=gram.device), count)
