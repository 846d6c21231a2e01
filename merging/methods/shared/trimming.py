"""Statistics over all tensors for TIES, the edit "trim" and magnitude pruning: thresholds, and the sign of exact ties.

``kth_smallest_of_slots`` computes exact quantiles over all tensors, for these and other methods.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import torch
from torch import Tensor

from merging.base.files.tables import Columns, Table
from merging.base.numerics.quantile import SampledRows, kth_smallest
from merging.base.numerics.sign_election import trim_rank
from merging.methods.slot import Slot, SlotStream

MAX_DENOMINATOR = 1_000_000  # of the fraction that a density rounds to


@dataclass(frozen=True)
class TrimThresholds:
    """Statistics over all tensors: each expert's threshold, and the sign for exact ties."""

    thresholds: tuple[float, ...] | None  # None if nothing is trimmed, or each tensor has its own
    tie_sign: float = 0.0

    def with_votes(self, votes: int) -> TrimThresholds:
        """A copy with the sign that most scalars of the model elect; ``votes`` is the sum of all signs."""
        return replace(self, tie_sign=float((votes > 0) - (votes < 0)))


def floor_share(count: int, share: float) -> int:
    """A share of ``count``, rounded down; the small term prevents 100 · 0.29 from becoming 28."""
    return math.floor(count * share + 1e-9)


def density_from_prune_ratio(prune_ratio: float) -> float:
    """The density 1 - η that drops the share η, without rounding error of the subtraction.

    In floating point 1 - 0.71 is 0.29000000000000004, and int(d·ρ) can differ from that of 0.29. Therefore the result
    is the nearby fraction with a small denominator, if there is one.
    """
    density = 1.0 - prune_ratio
    nearby = float(Fraction(density).limit_denominator(MAX_DENOMINATOR))
    return nearby if abs(nearby - density) <= sys.float_info.epsilon else density


def kth_smallest_of_slots(slots: SlotStream, rows: Callable[[Slot], Tensor], ranks: Sequence[int]) -> list[float]:
    """The numbers of these ranks (from 0), one per row, among the results (K, n) of ``rows`` on all slots.

    ``rows`` must work scalar by scalar. The scalars of an unused text tower count as zeros, if the recipe counts them.
    """
    sample = SampledRows(lambda stride: map(rows, slots.sample_slots(stride)), slots.numel)
    return kth_smallest(
        lambda: slots.map(rows),
        ranks,
        zero_count=slots.dead_numel,
        sample=sample,
        map_pieces=lambda count: slots.map(lambda slot: count(rows(slot))),
    )


def magnitudes(slot: Slot) -> Tensor:
    """The absolute values (K, n) of a slot's task vectors."""
    return slot.task_vectors.abs().flatten(1)


def global_thresholds(slots: SlotStream, density: float) -> tuple[tuple[float, ...], dict[str, Table]]:
    """Per expert, the absolute value of the smallest scalar kept over all tensors, and a table of these values."""
    numel = slots.numel + slots.dead_numel  # with the zeros of an unused text tower, if the recipe counts them
    thresholds = tuple(kth_smallest_of_slots(slots, magnitudes, [trim_rank(numel, density)] * len(slots.experts)))
    rows = {"expert": slots.experts, "threshold": thresholds, "numel": numel, "density": density}
    return thresholds, {"trim_thresholds": Columns(rows)}


def majority_sign(slots: SlotStream, trim: Callable[[Slot], Tensor]) -> float:
    """The sign (-1, 0 or 1) that most scalars of the model elect, after ``trim`` maps each slot to (K, *S)."""
    votes = sum(slots.map(lambda slot: trim(slot).sum(dim=0).sign().sum().long()))
    return float(torch.as_tensor(votes).sign().cpu())
