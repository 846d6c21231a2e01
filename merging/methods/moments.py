"""Moments of the rows that enter a layer, per expert: the only data that a method sees."""

from __future__ import annotations

import torch
from torch import Tensor

from merging.base.numerics.linear_algebra import fill_symmetric, lower_gram, to_float64


class Moments:
    """The moments of the rows X (n, d) that a layer multiplies by one weight, in one expert.

    They are the number of rows n, the sum of the rows (d,), and the Gram matrix XᵀX (d, d), in float64. A norm scale
    needs only the diagonal (d,) of the Gram matrix. Rows are added in batches. They are stored as rows while that takes
    less memory than XᵀX, and only as sums afterwards. Memory therefore does not grow with the number of exemplars.
    """

    def __init__(self, width: int, only_diagonal: bool = False) -> None:
        self.width, self.count = width, 0
        self._only_diagonal = only_diagonal
        self._rows: list[Tensor] = []
        self._total: Tensor | None = None  # (d,)
        self._gram: Tensor | None = None  # (d, d), correct on and below the diagonal; or the diagonal (d,)

    @classmethod
    def from_rows(cls, rows: Tensor) -> Moments:
        """The moments of rows (n, d) that are already in memory."""
        moments = cls(rows.shape[1])
        moments.count, moments._rows = len(rows), [rows]
        return moments

    @classmethod
    def from_sums(cls, count: int, total: Tensor, gram: Tensor) -> Moments:
        """The moments of ``count`` rows from their sum (d,) and XᵀX (d, d) or its diagonal (d,), in float64."""
        moments = cls(len(total), gram.ndim == 1)
        moments.count, moments._total, moments._gram = count, total, gram
        return moments

    @property
    def is_diagonal(self) -> bool:
        """Whether only the diagonal of XᵀX is known, as for a norm scale."""
        return self._only_diagonal

    def to_device(self, device: torch.device) -> Moments:
        """The same moments on a device."""
        if self.rows is None:
            assert self._total is not None and self._gram is not None
            return Moments.from_sums(self.count, self._total.to(device), self._gram.to(device))
        copy = Moments(self.width, self._only_diagonal)
        copy.count, copy._rows = self.count, [self.rows.to(device)]
        return copy

    @property
    def stored_tensors(self) -> tuple[Tensor, ...]:
        """The tensors in memory: rows (n, d), or their sum (d,) and XᵀX (d, d) or its diagonal (d,)."""
        return tuple(tensor for tensor in (*self._rows, self._total, self._gram) if tensor is not None)

    @property
    def rows(self) -> Tensor | None:
        """The rows (n, d) themselves; None once only their sums are stored."""
        if len(self._rows) > 1:
            self._rows = [torch.cat(self._rows)]
        return self._rows[0] if self._rows else None

    def add(self, rows: Tensor) -> None:
        """Add a batch of rows (b, d)."""
        self.count += len(rows)
        if self._gram is not None and self._total is not None:
            self._total += to_float64(rows).sum(dim=0)
            self._gram += self._compute_gram(rows)
            return
        self._rows.append(rows)
        gram_size = self.width if self._only_diagonal else self.width**2
        if self.count * self.width * rows.element_size() >= gram_size * torch.float64.itemsize:
            all_rows = torch.cat(self._rows)
            self._total, self._gram, self._rows = to_float64(all_rows).sum(dim=0), self._compute_gram(all_rows), []

    def _compute_gram(self, rows: Tensor) -> Tensor:
        """XᵀX (d, d) of rows X (n, d), correct on and below the diagonal; or its diagonal (d,)."""
        return to_float64(rows).square().sum(dim=0) if self._only_diagonal else lower_gram(rows.mT[None])

    def gram(self) -> Tensor:
        """XᵀX (d, d), in float64, in memory of its own."""
        assert not self._only_diagonal
        if self.rows is not None:
            return fill_symmetric(self._compute_gram(self.rows))
        assert self._gram is not None
        return fill_symmetric(self._gram.clone())

    def energy(self) -> Tensor:
        """The energy (d,) of each input channel: the sum of squares of a column of X, in float64."""
        if self.rows is not None:
            return to_float64(self.rows).square().sum(dim=0)
        assert self._gram is not None
        return self._gram if self._only_diagonal else self._gram.diagonal()

    def total(self) -> Tensor:
        """The sum (d,) of the rows, in float64."""
        if self.rows is not None:
            return to_float64(self.rows).sum(dim=0)
        assert self._total is not None
        return self._total
