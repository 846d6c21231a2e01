"""CAT's objective: the directions in which other tasks' vectors disturb a task more than they serve their own tasks.

Task vectors are in float64. Sums over rows are divided by the number of rows, which may differ between tasks.
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
DEPENDENT = 1e-6  # singular values of joined bases below this add no direction


@dataclass(frozen=True)
class Conflict:
    """The parts of the other tasks' vectors that disturb one task, and their scores, largest first.

    ``positions`` is an orthonormal basis (d_out, c) of output directions, or positions (c,) in a flat tensor;
    ``scores`` is (c,).
    """

    positions: Tensor
    scores: Tensor

    def remove_from(self, vector: Tensor) -> Tensor:
        """A task vector without the conflict, as a matrix (d_out, d_in) or flat (n,)."""
        if self.positions.ndim == 1:
            return vector.index_fill(0, self.positions.to(vector.device), 0.0)
        basis = self.positions.to(vector)
        cleared: Tensor = vector - basis @ (basis.T @ vector)
        return cleared


def join_conflicts(conflicts: Sequence[Conflict]) -> Conflict:
    """Several conflicts as one: all their positions, or one orthonormal basis of all their directions."""
    positions = [conflict.positions for conflict in conflicts]
    scores = torch.cat([conflict.scores for conflict in conflicts])
    if positions[0].ndim == 1:
        return Conflict(torch.cat(positions), scores)
    left, sizes, _ = torch.linalg.svd(torch.cat(positions, dim=1), full_matrices=False)
    return Conflict(left[:, sizes > DEPENDENT], scores)


@dataclass(frozen=True)
class LinearConflicts:
    """The objective for a linear map: M_k = Σ_{i≠k} τ_i (G_k/n_k - α G_i/n_i) τ_iᵀ, symmetric and indefinite."""

    vectors: Tensor  # (K, d_out, d_in)
    inputs: tuple[Moments, ...]
    tradeoff: float

    def top(self, task: int, count: int) -> Conflict:
        """The eigenvectors (d_out, c) of M_k with the largest positive eigenvalues (c,), at most ``count``."""
        others = [i for i in range(len(self.inputs)) if i != task]
        rows = len(others) * self.inputs[task].count + sum(self.inputs[i].count for i in others)
        have_rows = all(moments.rows is not None for moments in self.inputs)
        if have_rows and rows < self.vectors.shape[1]:
            return self._from_rows(task, others, count)
        return self._from_grams(task, count)

    def _from_rows(self, task: int, others: list[int], count: int) -> Conflict:
        """``top`` with few rows, exactly: M_k = Zᵀ diag(±1) Z acts only in the span of the outputs Z (rows, d_out)."""
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
        """The outputs (n, d_out) of one expert's task vector for the n rows of a task, divided by √n."""
        rows = self.inputs[task].rows
        assert rows is not None
        outputs: Tensor = to_float64(rows) @ self.vectors[expert].T / max(len(rows), 1) ** 0.5
        return outputs

    def _from_grams(self, task: int, count: int) -> Conflict:
        """``top`` from Gram matrices.

        The serving terms are summed over all i, also over i = k; the disturbing sum adds that term back with weight α.
        """
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
        """Σ_i w_i τ_i (G_k/n_k) τ_iᵀ (d_out, d_out), correct on and below the diagonal; uses X_k if it has few rows."""
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
    """The objective for elementwise tensors: g_k = Σ_{i≠k} (e_k - α e_i) τ_i² with mean squares e of their inputs.

    Shifts and embeddings have no input: for them e_k is 1 and α is 0.
    """

    vectors: Tensor  # (K, n)
    energies: Tensor | None  # (K, n)
    tradeoff: float = 0.0

    def top(self, task: int, count: int) -> Conflict:
        """The positions (c,) of the largest positive g_k (c,), at most ``count``."""
        squares = self.vectors.square()
        squares[task] = 0
        weights = 1.0 if self.energies is None else self.energies[task] - self.tradeoff * self.energies
        scores, positions = (weights * squares).sum(dim=0).topk(min(count, squares.shape[1]))
        return Conflict(positions[scores > 0], scores[scores > 0])


def mean_squares(inputs: tuple[Moments, ...]) -> Tensor:
    """The mean squares (K, d) of the input channels in every task."""
    return torch.stack([moments.energy() / max(moments.count, 1) for moments in inputs])


def _mean_gram(moments: Moments) -> Tensor:
    """XᵀX / n (d, d) of the n rows X."""
    return moments.gram() / max(moments.count, 1)


def _positive(values: Tensor, vectors: Tensor, scale: float, size: int) -> Conflict:
    """The eigenpairs, largest first, whose values exceed the rounding of terms of magnitude ``scale``.

    ``values`` (r,) ascend, ``vectors`` are (d, r); ``size`` is the number of rows of the matrix.
    """
    chosen = values.flip(0) > size * EPS * scale
    return Conflict(vectors.flip(1)[:, chosen], values.flip(0)[chosen])
