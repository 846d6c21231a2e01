"""CAT's objective: where the other tasks' vectors disturb a task more than they serve their own.

Task vectors are in float64; sums over rows are divided by the number of rows, as tasks may differ in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from merging.base.numerics.linear_algebra import add_lower_product, to_float64
from merging.methods.moments import Moments
from merging.methods.shared.least_squares import spectrum

EPS = torch.finfo(torch.float64).eps
DEPENDENT = 1e-6  # with several bases side by side, a singular value below this adds no direction


@dataclass(frozen=True)
class Conflict:
    """What one task wants removed from the others' vectors, and how much each part of it disturbs, largest first.

    ``where`` is an orthonormal basis (d_out, c) of output directions, or positions (c,) in a flat tensor.
    """

    positions: Tensor
    scores: Tensor

    def remove_from(self, vector: Tensor) -> Tensor:
        """A task vector, as matrix (d_out, d_in) or flat, without the conflict."""
        if self.positions.ndim == 1:
            return vector.index_fill(0, self.positions.to(vector.device), 0.0)
        basis = self.positions.to(vector)
        rest: Tensor = vector - basis @ (basis.T @ vector)
        return rest


def join_conflicts(conflicts: Sequence[Conflict]) -> Conflict:
    """Several conflicts as one: all their positions, or one orthonormal basis of all their directions."""
    where, scores = (
        [conflict.positions for conflict in conflicts],
        torch.cat([conflict.scores for conflict in conflicts]),
    )
    if where[0].ndim == 1:
        return Conflict(torch.cat(where), scores)
    left, sizes, _ = torch.linalg.svd(torch.cat(where, dim=1), full_matrices=False)
    return Conflict(left[:, sizes > DEPENDENT], scores)


@dataclass(frozen=True)
class LinearConflicts:
    """The objective for a linear map: M_k = Σ_{i≠k} τ_i (G_k/n_k - α G_i/n_i) τ_iᵀ, symmetric and indefinite."""

    vectors: Tensor  # (K, d_out, d_in)
    inputs: tuple[Moments, ...]
    tradeoff: float

    def top(self, task: int, count: int) -> Conflict:
        """The eigenvectors of M_k with the ``count`` largest eigenvalues, only those that are positive."""
        others = [i for i in range(len(self.inputs)) if i != task]
        rows = len(others) * self.inputs[task].count + sum(self.inputs[i].count for i in others)
        have_rows = all(moments.rows is not None for moments in self.inputs)
        if have_rows and rows < self.vectors.shape[1]:
            return self._from_rows(task, others, count)
        return self._from_grams(task, count)

    def _from_rows(self, task: int, others: list[int], count: int) -> Conflict:
        """Exact and cheap with few rows: M_k = Zᵀ diag(±1) Z acts only in the span of the outputs Z (rows, d_out)."""
        disturbing = [self._outputs(task, i) for i in others]
        serving = [self._outputs(i, i) * self.tradeoff**0.5 for i in others]
        outputs = torch.cat([*disturbing, *serving])
        signs = outputs.new_ones(len(outputs))
        signs[sum(map(len, disturbing)) :] = -1
        outer, inner = torch.linalg.qr(outputs.T)
        values, vectors = spectrum((inner * signs) @ inner.T, count)
        conflict = _positive(values, vectors, float(outputs.square().sum().cpu()), len(vectors))
        return Conflict(outer @ conflict.positions, conflict.scores)

    def _outputs(self, task: int, expert: int) -> Tensor:
        """The outputs of one expert's task vector for the rows of a task, (n, d_out) over √n."""
        rows = self.inputs[task].rows
        assert rows is not None
        outputs: Tensor = to_float64(rows) @ self.vectors[expert].T / max(len(rows), 1) ** 0.5
        return outputs

    def _from_grams(self, task: int, count: int) -> Conflict:
        # Σ_{i≠k} of the serving terms is their sum over all i without the task's own: that is added back with weight α.
        weights = dict.fromkeys(range(len(self.vectors)), 1.0)
        weights[task] = self.tradeoff
        disturbing = self._weighted_outputs(task, weights)
        matrix = disturbing - self.tradeoff * self._summed_outputs
        scale = float((disturbing.trace() + self.tradeoff * self._summed_outputs.trace()).cpu())
        return _positive(*spectrum(matrix, count), scale, len(matrix))

    @cached_property
    def _summed_outputs(self) -> Tensor:
        """Σ_i τ_i (G_i/n_i) τ_iᵀ (d_out, d_out), correct on and below the diagonal."""
        return sum(
            (self._weighted_outputs(i, {i: 1.0}) for i in range(1, len(self.inputs))),
            self._weighted_outputs(0, {0: 1.0}),
        )

    def _weighted_outputs(self, task: int, weights: Mapping[int, float]) -> Tensor:
        """Σ_i w_i τ_i (G_k/n_k) τ_iᵀ (d_out, d_out), correct up to the diagonal, by X_k where it has few rows."""
        total = self.vectors.new_zeros(self.vectors.shape[1], self.vectors.shape[1])
        rows = self.inputs[task].rows
        few = rows is not None and len(rows) < self.vectors.shape[2]
        gram = None if few else _mean_gram(self.inputs[task])
        for i, weight in weights.items():
            right = self._outputs(task, i).T if gram is None else self.vectors[i]
            left = weight * right
            add_lower_product(total, left if gram is None else left @ gram, right)
        return total


@dataclass(frozen=True)
class ScalarConflicts:
    """The objective for scalars that act alone: g_k = Σ_{i≠k} (e_k - α e_i) τ_i² with mean squares e of their inputs.

    Shifts and embeddings have no input: there e_k is 1 and α is 0.
    """

    vectors: Tensor  # (K, n)
    energies: Tensor | None  # (K, n)
    tradeoff: float = 0.0

    def top(self, task: int, count: int) -> Conflict:
        """The positions of the ``count`` largest g_k, only those that are positive."""
        squares = self.vectors.square()
        squares[task] = 0
        weights = 1.0 if self.energies is None else self.energies[task] - self.tradeoff * self.energies
        scores, where = (weights * squares).sum(dim=0).topk(min(count, squares.shape[1]))
        return Conflict(where[scores > 0], scores[scores > 0])


def mean_squares(inputs: tuple[Moments, ...]) -> Tensor:
    """The mean square of every input channel in every task, (K, d)."""
    return torch.stack([moments.energy() / max(moments.count, 1) for moments in inputs])


def _mean_gram(moments: Moments) -> Tensor:
    return moments.gram() / max(moments.count, 1)


def _positive(values: Tensor, vectors: Tensor, scale: float, size: int) -> Conflict:
    """Eigenpairs of a matrix of some size, only those whose value exceeds the rounding of terms of size ``scale``."""
    chosen = values.flip(0) > size * EPS * scale
    return Conflict(vectors.flip(1)[:, chosen], values.flip(0)[chosen])
