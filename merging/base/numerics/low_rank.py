"""Matrices as products of thin factors, and the small core matrices that represent them.

The columns of several matrices of low rank span a small space, and so do their rows. In orthonormal bases of these
spaces the matrices become small matrices with the same singular values, and these can be factorized instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from merging.base.numerics.linear_algebra import DEVICES_WITHOUT_FLOAT64, left_basis


@dataclass(frozen=True, slots=True)
class LowRank:
    """A matrix (m, n) in float64 as ``up`` (m, r) times ``down`` (r, n)."""

    up: Tensor
    down: Tensor

    @property
    def rank(self) -> int:
        """The number of columns of ``up``; the rank of the matrix is no larger."""
        return self.up.shape[1]

    @property
    def mT(self) -> LowRank:  # noqa: N802 - as torch's
        """The transpose (n, m) of the matrix (m, n)."""
        return LowRank(self.down.mT, self.up.mT)

    def select_rows(self, rows: slice) -> LowRank:
        """The matrix (rows, n) with only these ``rows``."""
        return LowRank(self.up[rows], self.down)

    def to(self, device: torch.device) -> LowRank:
        """The factors on a device; on the CPU if it has no float64."""
        target = torch.device("cpu") if device.type in DEVICES_WITHOUT_FLOAT64 else device
        return LowRank(self.up.to(target), self.down.to(target))


@dataclass(frozen=True, slots=True)
class ThinFactor:
    """A matrix of low rank that is read on demand; ``rank`` is the number of columns of its ``up``."""

    rank: int
    read: Callable[[], LowRank]


@dataclass(frozen=True, slots=True)
class CoreMatrices:
    """Matrices (K, m, n) as ``left`` (m, a), ``cores`` (K, a, b) and ``right`` (b, n), the outer two orthonormal."""

    left: Tensor
    cores: Tensor
    right: Tensor

    def expand(self, matrix: Tensor) -> Tensor:
        """The matrix (m, n) that a core matrix (a, b) represents."""
        return self.left @ matrix @ self.right


def find_core(matrices: Sequence[LowRank]) -> CoreMatrices:
    """Common bases and core matrices of K matrices (m, n) of low rank."""
    left, ups = torch.linalg.qr(torch.cat([matrix.up for matrix in matrices], dim=1))
    right, downs = torch.linalg.qr(torch.cat([matrix.down for matrix in matrices]).mT)
    ranks = [matrix.rank for matrix in matrices]
    parts = zip(ups.split(ranks, dim=1), downs.split(ranks, dim=1), strict=True)
    return CoreMatrices(left, torch.stack([up @ down.mT for up, down in parts]), right.mT)


def low_rank_basis(matrices: Sequence[LowRank], rank_tol: float) -> Tensor:
    """``linear_algebra.left_basis`` (m, r) of K matrices (m, n) side by side."""
    core = find_core(matrices)
    return core.left @ left_basis(core.cores, rank_tol)


def project_on_basis(basis: Tensor, matrices: Sequence[LowRank]) -> Tensor:
    """The coordinates (K, r, n) of K matrices (m, n) in ``basis`` (m, r), a basis of their columns."""
    return torch.stack([(basis.mT @ matrix.up) @ matrix.down for matrix in matrices])
