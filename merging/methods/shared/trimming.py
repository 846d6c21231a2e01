"""The trim of TIES and its election of signs: one rule for TIES, the edit "trim" and magnitude pruning.

``smallest`` gives them, and others, exact quantiles over all tensors.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

import torch
from torch import Tensor

from merging.files.tables import Columns, Table
from merging.methods.slot import Slot, SlotStream
from merging.numerics.quantile import Thinned, kth_smallest

LARGEST_DENOMINATOR = 1_000_000


@dataclass(frozen=True)
class TrimThresholds:
    """Statistics over all tensors: each expert's threshold, and the sign that exact ties take."""

    thresholds: tuple[float, ...] | None  # None: nothing is trimmed, or the scope is one tensor
    tie_sign: float = 0.0

    def counted(self, votes: int) -> TrimThresholds:
        """These with the sign that more scalars of the whole model elect; ``votes`` is the sum of all signs."""
        return replace(self, tie_sign=float((votes > 0) - (votes < 0)))


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


def smallest(slots: SlotStream, rows: Callable[[Slot], Tensor], ranks: Sequence[int]) -> list[float]:
    """``kth_smallest``, dead parameters included, of what ``rows`` makes of slots scalar by scalar, (K, n)."""
    sample = Thinned(lambda stride: map(rows, slots.thinned(stride)), slots.numel)
    counted = slots.dead_numel
    return kth_smallest(
        lambda: slots.map(rows), ranks, counted, sample, lambda count: slots.map(lambda slot: count(rows(slot)))
    )


def sizes(slot: Slot) -> Tensor:
    """Absolute values, (K, n)."""
    return slot.task_vectors.abs().flatten(1)


def global_thresholds(slots: SlotStream, density: float) -> tuple[tuple[float, ...], dict[str, Table]]:
    """Per expert, the size of the smallest scalar kept over all tensors, and the table that says so."""
    counted = slots.numel + slots.dead_numel
    thresholds = tuple(smallest(slots, sizes, [trim_rank(counted, density)] * len(slots.experts)))
    rows = {"expert": slots.experts, "threshold": thresholds, "numel": counted, "density": density}
    return thresholds, {"trim_thresholds": Columns(rows)}


def trimmed(vectors: Tensor, thresholds: tuple[float, ...] | None) -> Tensor:
    """Task vectors (K, *S) with everything below its expert's threshold set to zero; all of them for None."""
    if thresholds is None:
        return vectors
    # hardshrink drops |x| <= limit in one pass; the limit just below the threshold keeps the threshold itself.
    below = [_just_below(threshold, vectors.dtype) for threshold in thresholds]
    kept = torch.empty_like(vectors)
    for row, limit, out in zip(vectors, below, kept, strict=True):
        torch.hardshrink(row, limit, out=out)
    return kept


@lru_cache(maxsize=1024)
def _just_below(threshold: float, dtype: torch.dtype) -> float:
    return float(torch.nextafter(torch.tensor(threshold, dtype=dtype), torch.tensor(-1.0, dtype=dtype)))


def majority(slots: SlotStream, trim: Callable[[Slot], Tensor]) -> float:
    """The sign (-1, 0 or 1) that more scalars of the whole model elect, of what ``trim`` leaves of a slot (K, *S)."""
    votes = sum(slots.map(lambda slot: trim(slot).sum(dim=0).sign().sum().long()))
    return float(torch.as_tensor(votes).sign().cpu())


def elected_sign(kept: Tensor, tie_sign: float) -> Tensor:
    """The sign of every scalar's sum, (K, *S) -> (*S); exact ties take ``tie_sign``."""
    sign = kept.sum(dim=0).sign()
    return sign + tie_sign * (1 - sign.abs())
