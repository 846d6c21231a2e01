"""Task vectors as few singular vectors: the number for each task, their storage, and how tasks are joined."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from merging.base.numerics.linear_algebra import Factors, polar_factor, to_float64, truncated_svd
from merging.base.numerics.low_rank import find_core
from merging.methods.adapted_network import Parts
from merging.methods.slot import Slot
from merging.models.families import LINEAR_MAPS, Role

MATRICES = LINEAR_MAPS | {Role.EMBEDDING}  # roles whose two-dimensional tensors are decomposed
LEFT, RIGHT = ".left", ".right"  # suffixes of the two thin factors of a matrix


def is_decomposed(slot: Slot) -> bool:
    """Whether a tensor is decomposed: it is two-dimensional and not a table with one row per token."""
    return slot.pretrained.dim() == 2 and slot.role in MATRICES


def matrices_to_decompose(slot: Slot) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """The matrices (K, a, b) to decompose, and a function that maps a result (a, b) to the slot's shape (*S).

    They are the task vectors themselves or, if these have known low-rank factors, small matrices that represent them.
    """
    thin = slot.small_factors
    if thin is None:
        return slot.task_vectors, lambda result: result
    small = find_core(thin)
    return small.cores, small.expand


def kept_rank(full: int, experts: int, share: float | None) -> int:
    """The number of singular values kept per task, of ``full``: at least one if there are any; 1/K without a share."""
    return min(max(full // experts if share is None else int(full * share), 1), full)


def thin_factors(matrix: Tensor, rank: int) -> Parts:
    """The best approximation of a matrix (m, n) by factors (m, r), which holds the singular values, and (r, n)."""
    best = truncated_svd(matrix, rank)
    return {LEFT: (best.left * best.values).to(matrix), RIGHT: best.right.to(matrix)}


def read_factors(parts: Parts) -> Factors:
    """The factors, in float64, that ``thin_factors`` stored."""
    left = to_float64(parts[LEFT])
    values = left.norm(dim=0)
    return Factors(left / values, values, to_float64(parts[RIGHT]))


def join_factors(parts: Sequence[Factors]) -> Factors:
    """TSV-M's factors of several tasks: their singular vectors (m, r) and (r, n) joined, then orthogonalized."""
    left = polar_factor(torch.cat([part.left for part in parts], dim=1))
    right = polar_factor(torch.cat([part.right for part in parts]))
    return Factors(left, torch.cat([part.values for part in parts]), right)
