"""How many of a task vector's largest scalars a trim keeps: one rule for TIES and magnitude pruning."""

from __future__ import annotations

import sys
from fractions import Fraction

LARGEST_DENOMINATOR = 1_000_000


def trim_rank(numel: int, density: float) -> int:
    """0-based rank, in ascending order, of the smallest scalar that is kept: int(d·ρ) + 1 scalars (and ties) reach it,
    as in the published code of TIES."""
    return max(numel - int(numel * density) - 1, 0)


def density_of(prune_ratio: float) -> float:
    """The density 1 - η that drops the share η, as one would write it.

    In binary fractions 1 - 0.71 is 0.29000000000000004, and int(d·ρ) tells it from 0.29. So the fraction of whole
    numbers that is meant is looked for.
    """
    rest = 1.0 - prune_ratio
    meant = float(Fraction(rest).limit_denominator(LARGEST_DENOMINATOR))
    return meant if abs(meant - rest) <= sys.float_info.epsilon else rest
