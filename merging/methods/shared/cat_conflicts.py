"""CAT's objective: the directions in which other tasks' vectors disturb a task more than they serve those tasks.

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
MIN_SINGULAR_VALUE = 1e-6  # smaller singular values of joined bases add no direction


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
    return Conflict(left[:, sizes > MIN_SINGULAR_VALUE], scores)


@dataclass(frozen=True)
class LinearConflicts:
    """The objective for a linear map: M_k = Σ_{i≠k} τ_i (G_k/n_k - α G_i/n_i) τ_iᵀ, symmetric and indefinite."""

    vectors: Tensor  # (K, d_out, d_in)
    inputs: tuple[Moments, ...]
    tradeoff: float

    def find_top(self, task: int, count: int) -> Conflict:
        """The eigenvectors (d_out, c) of M_k with the largest positive eigenvalues (c,), at most ``count``."""
        other_tasks = [i for i in range(len(self.inputs)) if i != task]
        row_count = len(other_tasks) * self.inputs[task].count + sum(self.inputs[i].count for i in other_tasks)
        have_rows = all(moments.rows is not None for moments in self.inputs)
        if have_rows and row_count < self.vectors.shape[1]:
            return self._find_from_rows(task, other_tasks, count)
        return self._find_from_grams(task, count)

    def _find_from_rows(self, task: int, other_tasks: list[int], count: int) -> Conflict:
        """``find_top`` from rows, exactly: M_k = Zᵀ diag(±1) Z acts only in the span of the outputs Z (rows, d_out)."""
        disturbing = [self._compute_outputs(task, i) for i in other_tasks]
        serving = [self._compute_outputs(i, i) * self.tradeoff**0.5 for i in other_tasks]
        outputs = torch.cat([*disturbing, *serving])
        signs = outputs.new_ones(len(outputs))
        signs[sum(map(len, disturbing)) :] = -1
        outer, inner = torch.linalg.qr(outputs.T)
        values, vectors = spectrum((inner * signs) @ inner.T, count)
        conflict = _select_positive(values, vectors, float(outputs.square().sum().cpu()), len(vectors))
        return Conflict(outer @ conflict.positions, conflict.scores)

    def _compute_outputs(self, task: int, expert: int) -> Tensor:
        """The outputs (n, d_out) of one expert's task vector for the n rows of a task, divided by √n."""
        rows = self.inputs[task].rows
        assert rows is not None
        outputs: Tensor = to_float64(rows) @ self.vectors[expert].T / max(len(rows), 1) ** 0.5
        return outputs

    def _find_from_grams(self, task: int, count: int) -> Conflict:
        """``find_top`` from Gram matrices.

        The serving terms are summed over all i, also over i = k; the disturbing sum adds that term back with weight α.
        """
        weights = dict.fromkeys(range(len(self.vectors)), 1.0)
        weights[task] = self.tradeoff
        disturbing = self._sum_outputs(task, weights)
        matrix = disturbing - self.tradeoff * self._summed_outputs
        scale = float((disturbing.trace() + self.tradeoff * self._summed_outputs.trace()).cpu())
        return _select_positive(*spectrum(matrix, count), scale, len(matrix))

    @cached_property
    def _summed_outputs(self) -> Tensor:
        """Σ_i τ_i (G_i/n_i) τ_iᵀ (d_out, d_out), correct on and below the diagonal."""
        return sum(
            (self._sum_outputs(i, {i: 1.0}) for i in range(1, len(self.inputs))),
            self._sum_outputs(0, {0: 1.0}),
        )

    def _sum_outputs(self, task: int, weights: Mapping[int, float]) -> Tensor:
        """Σ_i w_i τ_i (G_k/n_k) τ_iᵀ (d_out, d_out), correct on and below the diagonal; uses X_k if it has few rows."""
        total = self.vectors.new_zeros(self.vectors.shape[1], self.vectors.shape[1])
        rows = self.inputs[task].rows
        has_few_rows = rows is not None and len(rows) < self.vectors.shape[2]
        gram = None if has_few_rows else _mean_gram(self.inputs[task])
        for i, weight in weights.items():
            right = self._compute_outputs(task, i).T if gram is None else self.vectors[i]
            left = weight * right
            add_lower_product(total, left if gram is None else left @ gram, right)
        return total


@dataclass(frozen=True)
class ScalarConflicts:
    """The objective for elementwise tensors: g_k = Σ_{i≠k} (e_k - α e_i) τ_i² with mean squares e of their inputs.

    No input enters shifts and embeddings: for them e_k is 1 and α is 0.
    """

    vectors: Tensor  # (K, n)
    energies: Tensor | None  # (K, n)
    tradeoff: float = 0.0

    def find_top(self, task: int, count: int) -> Conflict:
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


def _select_positive(values: Tensor, vectors: Tensor, scale: float, size: int) -> Conflict:
    """The eigenpairs, largest first, whose values exceed the rounding of terms of magnitude ``scale``.

    ``values`` (r,) ascend, ``vectors`` are (d, r); ``size`` is the number of rows of the matrix.
    """
    exceeds = values.flip(0) > size * EPS * scale
    return Conflict(vectors.flip(1)[:, exceeds], values.flip(0)[exceeds])
