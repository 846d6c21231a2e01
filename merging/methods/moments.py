"""Moments of the rows that enter a layer, per expert: all that a method sees of the data."""

from __future__ import annotations

import torch
from torch import Tensor

from merging.base.numerics.linear_algebra import fill_symmetric, lower_gram, to_float64


def ignore_detail(detail: str) -> None:
    """Do nothing: for callers that do not follow the details of progress."""


class Moments:
    """The rows X (n, d) that enter one tensor in one expert: n, their sum, XᵀX and its diagonal, in float64.

    Rows are added in batches. They are stored as rows while that takes less memory than XᵀX, and as sums afterwards, so
    memory does not grow with the number of exemplars. A norm scale needs only the diagonal of XᵀX.
    """

    def __init__(self, width: int, diagonal: bool = False) -> None:
        self.width, self.count = width, 0
        self._diagonal = diagonal
        self._rows: list[Tensor] = []
        self._total: Tensor | None = None  # (d,)
        self._squares: Tensor | None = None  # (d, d), correct on and below the diagonal, or (d,)

    @classmethod
    def from_rows(cls, rows: Tensor) -> Moments:
        """The moments of rows (n, d) that are already in memory."""
        moments = cls(rows.shape[1])
        moments.count, moments._rows = len(rows), [rows]
        return moments

    @classmethod
    def from_sums(cls, count: int, total: Tensor, squares: Tensor) -> Moments:
        """The moments of ``count`` rows from their sum (d,) and XᵀX (d, d) or its diagonal (d,), in float64."""
        moments = cls(len(total), squares.ndim == 1)
        moments.count, moments._total, moments._squares = count, total, squares
        return moments

    @property
    def is_diagonal(self) -> bool:
        """Whether only the diagonal of XᵀX is known, as for a norm scale."""
        return self._diagonal

    def to(self, device: torch.device) -> Moments:
        """The same moments on a device."""
        if self.rows is not None:
            rows = self.rows.to(device)
            moved = Moments(self.width, self._diagonal)
            moved.count, moved._rows = self.count, [rows]
            return moved
        assert self._total is not None and self._squares is not None
        return Moments.from_sums(self.count, self._total.to(device), self._squares.to(device))

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors in memory: rows (n, d), or their sum (d,) and XᵀX (d, d) or its diagonal (d,)."""
        return tuple(tensor for tensor in (*self._rows, self._total, self._squares) if tensor is not None)

    @property
    def rows(self) -> Tensor | None:
        """The rows (n, d) themselves; None once only their sums are stored."""
        if len(self._rows) > 1:
            self._rows = [torch.cat(self._rows)]
        return self._rows[0] if self._rows else None

    def add(self, rows: Tensor) -> None:
        """Add a batch of rows (b, d)."""
        self.count += len(rows)
        if self._squares is not None and self._total is not None:
            self._total += to_float64(rows).sum(dim=0)
            self._squares += self._products(rows)
            return
        self._rows.append(rows)
        size = self.width if self._diagonal else self.width**2
        if self.count * self.width * rows.element_size() >= size * torch.float64.itemsize:
            all_rows = torch.cat(self._rows)
            self._total, self._squares, self._rows = to_float64(all_rows).sum(dim=0), self._products(all_rows), []

    def _products(self, rows: Tensor) -> Tensor:
        return to_float64(rows).square().sum(dim=0) if self._diagonal else lower_gram(rows.mT[None])

    def gram(self) -> Tensor:
        """XᵀX (d, d), in float64."""
        assert not self._diagonal
        lower = self._products(self.rows) if self.rows is not None else self._squares
        assert lower is not None
        return fill_symmetric(lower)

    def energy(self) -> Tensor:
        """Sums of squares (d,) of the columns of X, the diagonal of XᵀX, in float64."""
        if self.rows is not None:
            return to_float64(self.rows).square().sum(dim=0)
        assert self._squares is not None
        return self._squares if self._diagonal else self._squares.diagonal()

    def total(self) -> Tensor:
        """Sum (d,) of the rows, in float64."""
        if self.rows is not None:
            return to_float64(self.rows).sum(dim=0)
        assert self._total is not None
        return self._total
