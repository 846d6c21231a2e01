"""Task vectors as few singular vectors: how many are kept of each, how they are stored, and how tasks are joined."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from merging.methods.adapting import Parts
from merging.numerics.linear_algebra import Factors, double, polar, truncated_svd

LEFT, RIGHT = ".left", ".right"  # suffixes of the two thin factors of a matrix


def kept_rank(full: int, experts: int, share: float | None) -> int:
    """Singular values kept per task of ``full``, at least one where there are any; without a share, 1/K of them."""
    return min(max(full // experts if share is None else int(full * share), 1), full)


def thin(matrix: Tensor, rank: int) -> Parts:
    """The best approximation (m, n) of a rank as two thin factors, singular values in the left one."""
    best = truncated_svd(matrix, rank)
    return {LEFT: (best.left * best.values).to(matrix), RIGHT: best.right.to(matrix)}


def factors(parts: Parts) -> Factors:
    """The factors, in float64, that ``thin`` stored."""
    left = double(parts[LEFT])
    values = left.norm(dim=0)
    return Factors(left / values, values, double(parts[RIGHT]))


def joined(parts: Sequence[Factors]) -> Factors:
    """TSV-M's factors of several tasks: their singular vectors side by side, made orthogonal to each other."""
    left = polar(torch.cat([part.left for part in parts], dim=1))
    right = polar(torch.cat([part.right for part in parts]))
    return Factors(left, torch.cat([part.values for part in parts]), right)
