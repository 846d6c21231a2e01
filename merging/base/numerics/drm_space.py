"""DRM's joint space: the tasks' matrices in one basis, in which they are renormalized, pruned, elected and averaged.

``entries`` (K, r, n) are the tasks' matrices in that basis: row i of task k is its part along the i-th basis vector,
singular value included. All functions compute row by row, in pieces that fit the processor's cache.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from merging.base.numerics.quantile import kth_smallest

# A row that is shorter than this share of its task's matrix holds only rounding errors. After renormalization they
# would use up a part of the density, and they would count in the mean.
ROUNDING_SHARE = {torch.float64: 1e-10, torch.float32: 1e-5}
PIECE_ENTRIES = 1 << 15  # entries per task


def prune_rows(entries: Tensor, density: float, renorm: bool, joint: bool) -> Iterator[tuple[slice, Tensor]]:
    """Slices of rows with their entries (K, rows, n), of which all but the largest fraction ``density`` are zero.

    Entries (K, r, n) are ranked over all tasks together if ``joint``, else task by task. Their unit is the length of
    their row if ``renorm``, else the singular value of the basis vector. Of N entries, round(ρN) + 1 are kept, and also
    all entries that tie with the smallest of these. Zeros are never kept.
    """
    unit = row_units(entries, renorm)
    limits = _find_limits(entries, unit, density, 1 if joint else len(entries))
    for rows in _slice_rows(entries):
        part = entries[:, rows]
        yield rows, part * (part.abs().div_(unit[:, rows]) >= limits)


def prune_rank(numel: int, density: float) -> int:
    """0-based rank, in ascending order, of the smallest entry that is kept; negative if all entries are kept."""
    return numel - round(density * numel) - 1


def row_units(entries: Tensor, renorm: bool = True) -> Tensor:
    """The unit (K, r, 1) by which each row of ``entries`` (K, r, n) is ranked; infinity for rows of rounding errors."""
    lengths = entries.norm(dim=-1, keepdim=True)  # renormalization moves the lengths into the singular values
    rounding = lengths <= ROUNDING_SHARE[entries.dtype] * lengths.norm(dim=1, keepdim=True)
    return torch.where(rounding, torch.inf, lengths if renorm else lengths.norm(dim=0, keepdim=True))


def average_rows(entries: Tensor, elect: bool, disjoint: bool) -> Tensor:
    """The mean (rows, n) over the tasks of their pruned rows ``entries`` (K, rows, n), which may be overwritten.

    ``elect`` averages only entries that have the sign of the sum, ``disjoint`` only entries that are not zero.
    """
    if elect:
        # An exact tie elects no sign: the majority of all signs would depend on the arbitrary sign of each row.
        sign = entries.sum(dim=0).sign()
        entries = entries.mul_(sign).relu_().mul_(sign)
    count = entries.sign().abs_().sum(dim=0).clamp_(min=1) if disjoint else len(entries)
    return entries.sum(dim=0) / count


def _find_limits(entries: Tensor, unit: Tensor, density: float, groups: int) -> Tensor:
    """The smallest size of a kept entry, in units, for each group (groups, 1, 1); always above zero."""

    def sizes() -> Iterator[Tensor]:
        return (entries[:, rows].abs().div_(unit[:, rows]).reshape(groups, -1) for rows in _slice_rows(entries))

    rank = prune_rank(entries.numel() // groups, density)
    # A negative rank: all entries are kept.
    limits = entries.new_tensor(kth_smallest(sizes, [rank] * groups) if rank >= 0 else [0.0])
    return limits.clamp(min=torch.finfo(entries.dtype).tiny)[:, None, None]


def _slice_rows(entries: Tensor) -> Iterator[slice]:
    """Slices of rows, each small enough that the rows of all tasks fit the processor's cache."""
    step = max(PIECE_ENTRIES // max(entries.shape[2], 1), 1)
    return (slice(start, start + step) for start in range(0, entries.shape[1], step))
