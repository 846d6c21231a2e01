"""DRM's joint space: the tasks' matrices in one basis, where they are renormalized, pruned, elected and averaged.

``entries`` (K, r, n) are the tasks' matrices in that basis: row i of task k is the i-th basis vector's part of it, with
the singular value in it. Everything here goes row by row, in pieces that fit the processor's cache.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from merging.numerics.quantile import kth_smallest

# Entries of a task's row that is shorter than this share of its matrix are rounding: renormalized, they would take part
# of the density, and they would count in the mean.
ROUNDING = {torch.float64: 1e-10, torch.float32: 1e-5}
PIECE = 1 << 15  # entries per task


def pruned(entries: Tensor, density: float, renorm: bool, joint: bool) -> Iterator[tuple[slice, Tensor]]:
    """Rows and their entries (K, rows, n), zero where they are not among the largest ``density`` of all.

    Entries are ranked for all tasks together if ``joint``, else task by task; in units of their own row if ``renorm``,
    else of the basis vector's singular value. round(ρN) + 1 of N and ties survive, never a zero.
    """
    measured = units(entries, renorm)
    limits = _limits(entries, measured, density, 1 if joint else len(entries))
    for rows in _pieces(entries):
        part = entries[:, rows]
        yield rows, part * (part.abs().div_(measured[:, rows]) >= limits)


def units(entries: Tensor, renorm: bool = True) -> Tensor:
    """What entries are measured against before pruning, (K, r, 1): infinity for rows that are only rounding."""
    lengths = entries.norm(dim=-1, keepdim=True)  # renormalization moves them into the singular values
    rounding = lengths <= ROUNDING[entries.dtype] * lengths.norm(dim=1, keepdim=True)
    return torch.where(rounding, torch.inf, lengths if renorm else lengths.norm(dim=0, keepdim=True))


def averaged(entries: Tensor, elect: bool, disjoint: bool) -> Tensor:
    """Pruned rows of all tasks (K, rows, n) made one (rows, n); works in place."""
    if elect:
        # An exact tie elects nobody: the majority of all signs would hang on the arbitrary sign of each row.
        sign = entries.sum(dim=0).sign()
        entries = entries.mul_(sign).relu_().mul_(sign)
    count = entries.sign().abs_().sum(dim=0).clamp_(min=1) if disjoint else len(entries)
    return entries.sum(dim=0) / count


def _limits(entries: Tensor, measured: Tensor, density: float, groups: int) -> Tensor:
    """The size that an entry must have in its units to be kept, (groups, 1, 1); zeros never have it."""

    def sizes() -> Iterator[Tensor]:
        return (entries[:, rows].abs().div_(measured[:, rows]).reshape(groups, -1) for rows in _pieces(entries))

    numel = entries.numel() // groups
    rank = numel - round(density * numel) - 1
    limits = entries.new_tensor(kth_smallest(sizes, [rank] * groups) if rank >= 0 else [0.0])
    return limits.clamp(min=torch.finfo(entries.dtype).tiny)[:, None, None]


def _pieces(entries: Tensor) -> Iterator[slice]:
    """Rows whose entries for all tasks fit the processor's cache: everything but the products is done on these."""
    step = max(PIECE // max(entries.shape[2], 1), 1)
    return (slice(start, start + step) for start in range(0, entries.shape[1], step))
