"""The regression behind LOT, RegMean and CAT: a linear map that fits every expert's outputs on its own inputs.

Expert k contributes G_k = X_kᵀX_k of the rows X_k (n_k, d_in) that enter the layer, and its task vector T_k, written as
(d_in, d_out) here. One G_k is in memory at a time and added to a sum. If there are fewer rows than inputs, the rows
themselves are stored: products with them are smaller.
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

RETRY = 1e-12  # share of the mean eigenvalue that is added where an eigen-decomposition does not converge


def as_matrices(slot: Slot, tensors: Tensor | None = None) -> Tensor:
    """Task vectors of a linear map as (K, d_out, d_in), whatever their stored layout; or other tensors (K, *S)."""
    stored = slot.task_vectors if tensors is None else tensors
    return stored.mT if _is_transposed(slot) else stored.flatten(2)


def as_stored(matrix: Tensor, slot: Slot) -> Tensor:
    """The inverse of ``as_matrices``: matrices (..., d_out, d_in) in the slot's own shape (..., *S)."""
    return matrix.mT if _is_transposed(slot) else matrix.reshape(*matrix.shape[:-2], *slot.pretrained.shape)


def _is_transposed(slot: Slot) -> bool:
    return slot.role == Role.PROJECTION and is_transposed_name(slot.name)


@dataclass(frozen=True, slots=True)
class NormalEquations:
    """Σ_k ‖X_k (T - T_k)‖² as a function of T: tr(Tᵀ gram T) - 2 tr(Tᵀ target) + energy, in float64."""

    gram: Tensor  # Σ G_k (d_in, d_in)
    target: Tensor  # Σ G_k T_k (d_in, d_out)
    energy: float  # Σ ‖X_k T_k‖², the value for T = 0
    rows: int

    def value(self, columns: Tensor) -> float:
        """The sum Σ_k ‖X_k (T - T_k)‖² for a map T (d_in, d_out)."""
        return max(0.0, self.energy + float((columns * (self.gram @ columns - 2 * self.target)).sum().cpu()))

    def least_value(self, solution: Tensor) -> float:
        """The same for a map (d_in, d_out) that solves the equations, in all directions or in some."""
        return max(0.0, self.energy - float((solution * self.target).sum().cpu()))

    def spectrum(self) -> tuple[Tensor, Tensor]:
        """The eigenvalues (d_in,) of Σ G_k, ascending, and its eigenvectors (d_in, d_in)."""
        return spectrum(self.gram)

    def solution(self, values: Tensor, vectors: Tensor) -> Tensor:
        """The solution (d_in, d_out) on the span of eigenvectors (d_in, r) with eigenvalues (r,)."""
        columns: Tensor = vectors @ ((vectors.T @ self.target) / values[:, None])
        return columns


@dataclass(frozen=True, slots=True)
class FewRows:
    """``NormalEquations`` with fewer rows than inputs: ‖X T - Y‖² with all rows X, and Y_k = X_k T_k, in float64.

    The eigenvalues of X Xᵀ are those of Σ G_k that are not zero.
    """

    inputs: Tensor  # X (rows, d_in)
    outputs: Tensor  # Y (rows, d_out)

    @property
    def energy(self) -> float:
        """Σ ‖X_k T_k‖², the value for T = 0."""
        return float(self.outputs.square().sum().cpu())

    def value(self, columns: Tensor) -> float:
        """The sum Σ_k ‖X_k (T - T_k)‖² for a map T (d_in, d_out)."""
        return float((self.inputs @ columns - self.outputs).square().sum().cpu())

    def least_value(self, solution: Tensor) -> float:
        """The same for a map (d_in, d_out) that solves the equations, in all directions or in some."""
        return self.value(solution)

    def spectrum(self) -> tuple[Tensor, Tensor]:
        """The eigenvalues (rows,) of X Xᵀ, ascending, and its eigenvectors (rows, rows)."""
        return spectrum(lower_gram(self.inputs[None]))

    def solution(self, values: Tensor, vectors: Tensor) -> Tensor:
        """The solution (d_in, d_out) on the span of eigenvectors (rows, r) with eigenvalues (r,)."""
        columns: Tensor = self.inputs.T @ (vectors @ ((vectors.T @ self.outputs) / values[:, None]))
        return columns


def least_squares(slot: Slot, inputs: tuple[Moments, ...]) -> NormalEquations | FewRows:
    """The regression of a slot, in the form that is smaller."""
    rows = [moments.rows for moments in inputs if moments.rows is not None]
    if len(rows) < len(inputs) or sum(map(len, rows)) >= inputs[0].width:
        return normal_equations(slot, inputs)
    exact = [to_float64(expert_rows) for expert_rows in rows]
    outputs = [x @ to_float64(vector).T for x, vector in zip(exact, as_matrices(slot), strict=True)]
    return FewRows(torch.cat(exact), torch.cat(outputs))


def normal_equations(slot: Slot, inputs: tuple[Moments, ...], alpha: float = 1.0) -> NormalEquations:
    """The normal equations of a slot, with the off-diagonal entries of every G_k multiplied by ``alpha``."""
    equations: NormalEquations | None = None
    for k, (moments, vector) in enumerate(zip(inputs, as_matrices(slot), strict=True)):
        gram, columns = moments.gram(), to_float64(vector).T
        diagonal = gram.diagonal().clone()
        target = alpha * _product(moments, gram, columns) + (1 - alpha) * diagonal[:, None] * columns
        gram.mul_(alpha).diagonal().copy_(diagonal)
        energy = float((columns * target).sum().cpu())
        if equations is None:
            equations = NormalEquations(gram, target, energy, moments.count)
        else:
            total, rows = equations.energy + energy, equations.rows + moments.count
            equations = NormalEquations(equations.gram.add_(gram), equations.target.add_(target), total, rows)
        slot.report_share((k + 1) / (len(inputs) + 2))
    assert equations is not None
    return equations


def _product(moments: Moments, gram: Tensor, columns: Tensor) -> Tensor:
    """G T (d_in, d_out), from the rows if two products with them cost less than one with G."""
    rows = moments.rows
    if rows is None or 2 * len(rows) >= moments.width:
        return gram @ columns
    exact = to_float64(rows)
    return exact.T @ (exact @ columns)


def spectrum(gram: Tensor, count: int | None = None) -> tuple[Tensor, Tensor]:
    """Eigenvalues (r,), ascending, and eigenvectors (d, r) of a symmetric matrix (d, d): ``count`` largest, or all."""
    try:
        return decompose_symmetric(gram, count)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]  # happens occasionally on accelerators
        ridge = RETRY * gram.diagonal().mean()
        return decompose_symmetric(gram + ridge * torch.eye(len(gram), dtype=gram.dtype, device=gram.device), count)
