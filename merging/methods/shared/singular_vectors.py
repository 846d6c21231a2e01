"""Low-rank task vectors: how many singular vectors each task keeps, how they are stored, and how tasks are joined."""

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
    factors = slot.small_factors
    if factors is None:
        return slot.task_vectors, lambda result: result
    core = find_core(factors)
    return core.cores, core.expand


def kept_rank(full_rank: int, experts: int, share: float | None) -> int:
    """The number of singular values kept per task: a share of ``full_rank``, by default 1/K, but at least one."""
    return min(max(full_rank // experts if share is None else int(full_rank * share), 1), full_rank)


def thin_factors(matrix: Tensor, rank: int) -> Parts:
    """The best approximation of a matrix (m, n) by factors (m, r), scaled by the singular values, and (r, n)."""
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
