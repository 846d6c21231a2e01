"""The exact k-th smallest of numbers that are streamed and never held in memory at once.

A strided sample brackets the value. Another pass counts the numbers below the bracket and stores those inside it (well
under one percent). A selection among the stored numbers gives the exact value. If the bracket misses the value, it is
moved and the pass is repeated, so the result never depends on the sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

T = TypeVar("T")

SAMPLE_STRIDE = 61  # a prime, which shares no period with the rows of a matrix
LARGE_STRIDE = 269  # the same of large rows; a quarter of it, rounded down, is also a prime
LARGE_ROW = 1 << 25  # numbers from which on a row is sampled with the larger stride
SIGMAS = 5.0  # half width of a bracket in standard errors of a sample quantile
GROUP_SIZE, MIN_GROUPS = 1 << 10, 8  # neighboring numbers in a group of a sample; least number of groups
QUANTILE_STRIDE = 16  # one in this many numbers of the sample estimates the quantile at which groups are compared

Rows = Callable[[], Iterable[Tensor]]  # streams K rows in pieces (K, n), again at each call
# Applies a function to every piece of ``Rows`` and returns the results in order; it may use threads.
PieceMapper = Callable[[Callable[[Tensor], T]], Iterable[T]]


class SampledRows(NamedTuple):
    """A faster stream of a sample of K rows: ``rows(n)`` streams pieces (K, m) with one in n of a row's numbers.

    ``total`` is the length of a row. The sampled numbers may form groups of neighbors that are spread evenly over
    the rows.
    """

    rows: Callable[[int], Iterable[Tensor]]
    total: int


class _GrowingArray:
    """Numbers collected in one growing block.

    Thousands of small arrays would outlive the large pieces between which they are allocated, and would leave gigabytes
    of holes in memory into which no later piece fits.
    """

    def __init__(self) -> None:
        self._block, self._length = np.empty(0, dtype=np.float64), 0

    def add(self, values: NDArray[Any]) -> None:
        """Append ``values`` (n,)."""
        end = self._length + len(values)
        if end > len(self._block):
            grown = np.empty(max(end, 2 * len(self._block), 1 << 16), dtype=values.dtype)
            grown[: self._length] = self._block[: self._length]
            self._block = grown
        self._block[self._length : end] = values
        self._length = end

    @property
    def values(self) -> NDArray[Any]:
        """All numbers added so far (n,)."""
        return self._block[: self._length]


class _Counts(NamedTuple):
    """How many numbers are below a bracket and at its bounds, and the numbers strictly inside it (m,)."""

    below: int
    at_low: int
    at_high: int
    inside: NDArray[Any]


@dataclass(slots=True)
class _Bracket:
    """Bounds of one row's value, ``low <= value <= high``, and the counts of a pass over the row."""

    rank: int  # 0-based
    low: float
    high: float
    below: int = 0
    at_low: int = 0
    at_high: int = 0
    inside: _GrowingArray = field(default_factory=_GrowingArray)

    def add(self, counts: _Counts) -> None:
        """Add the counts of some numbers."""
        self.below += counts.below
        self.at_low += counts.at_low
        self.at_high += counts.at_high
        self.inside.add(counts.inside)

    def resolve(self) -> float | None:
        """The exact value; None if the value is outside the bracket, which then moves to the side of the value."""
        inside_count = len(self.inside.values)
        position = self.rank - self.below
        if position < 0:
            self._move(0.0, math.nextafter(self.low, -math.inf))
            return None
        if position < self.at_low:
            return self.low
        if position < self.at_low + inside_count:
            kth = position - self.at_low
            return _value_at_rank(self.inside.values, kth)
        if position < self.at_low + inside_count + self.at_high:
            return self.high
        self._move(math.nextafter(self.high, math.inf), math.inf)
        return None

    def _move(self, low: float, high: float) -> None:
        self.low, self.high = low, high
        self.below = self.at_low = self.at_high = 0
        self.inside = _GrowingArray()


def kth_smallest(
    rows: Rows,
    ranks: Sequence[int],
    zero_count: int = 0,
    sample: SampledRows | None = None,
    map_pieces: PieceMapper[list[_Counts]] | None = None,
) -> list[float]:
    """For each of K rows of non-negative numbers, its value of 0-based rank ``ranks[k]`` in ascending order.

    Further ranks of the same rows need no further pass: ``ranks[K + k]`` is another rank in row k, and so on.
    ``rows()`` streams the rows in pieces (K, n), finite, of any float dtype; it is called twice, rarely more often.
    Every row has another ``zero_count`` zeros that are not streamed. A rank beyond the end gives the largest value.
    ``sample`` replaces the first call of ``rows``; it affects the speed, not the result. ``map_pieces`` replaces the
    other calls.
    """
    if zero_count:
        values = kth_smallest(rows, [max(rank - zero_count, 0) for rank in ranks], sample=sample, map_pieces=map_pieces)
        return [0.0 if rank < zero_count else value for rank, value in zip(ranks, values, strict=True)]
    brackets = _bracket_ranks(rows, ranks, sample)  # in a function, so that its sample is freed
    if not brackets:
        return [0.0 for _ in ranks]
    answers: dict[int, float] = {}
    while open_brackets := {k: bracket for k, bracket in enumerate(brackets) if k not in answers}:
        _count_all(rows, open_brackets, map_pieces)
        answers |= {k: value for k, bracket in open_brackets.items() if (value := bracket.resolve()) is not None}
    return [answers[k] for k in range(len(brackets))]


def _bracket_ranks(rows: Rows, ranks: Sequence[int], sampled: SampledRows | None) -> list[_Bracket]:
    """The bracket of every rank, by a sample; empty if the rows are empty."""
    if sampled is None:
        sample, total = _sample_rows(rows)
    else:
        total = sampled.total
        sample = _collect_rows(sampled.rows(LARGE_STRIDE if total >= LARGE_ROW else SAMPLE_STRIDE))
    return [
        _bracket_rank(sample[k % len(sample)], min(rank, total - 1), total) for k, rank in enumerate(ranks) if total
    ]


def _count_all(rows: Rows, brackets: Mapping[int, _Bracket], map_pieces: PieceMapper[list[_Counts]] | None) -> None:
    """Count all numbers against the brackets, {index of the rank: bracket}."""

    def count_piece(piece: Tensor) -> list[_Counts]:
        rows = piece.reshape(len(piece), -1)
        counts = dict[int, _Counts]()
        for first in range(0, max(brackets) + 1, len(rows)):  # one rank of every row at a time
            open_rows = {k - first: bracket for k, bracket in brackets.items() if 0 <= k - first < len(rows)}
            if open_rows:
                counts |= zip((k + first for k in open_rows), _count_rows(rows, open_rows), strict=True)
        return [counts[k] for k in brackets]

    for counts in map_pieces(count_piece) if map_pieces is not None else map(count_piece, rows()):
        for bracket, piece_counts in zip(brackets.values(), counts, strict=True):
            bracket.add(piece_counts)


def _count_rows(rows: Tensor, brackets: Mapping[int, _Bracket]) -> Iterator[_Counts]:
    """The counts of rows (K, n) against their brackets, {index of the row: bracket}."""
    if not rows.is_cpu:  # only the numbers inside are copied to the host
        for number, bracket in brackets.items():
            row, (low, high) = rows[number], torch.tensor([bracket.low, bracket.high], dtype=rows.dtype).tolist()
            candidates = row[(row >= low) & (row <= high)].cpu().numpy()
            yield _split_ties(candidates, int((row < low).sum().cpu()), bracket)
        return
    # numpy compares and selects several times faster than torch on a CPU.
    values = (rows if len(brackets) == len(rows) else rows[list(brackets)]).numpy()
    bounds = np.array([(bracket.low, bracket.high) for bracket in brackets.values()], values.dtype)
    inside = values >= bounds[:, :1]
    below = [len(row) - int(np.count_nonzero(row)) for row in inside]
    inside &= values <= bounds[:, 1:]
    for number, bracket in enumerate(brackets.values()):
        yield _split_ties(values[number][inside[number]], below[number], bracket)


def _split_ties(candidates: NDArray[Any], below: int, bracket: _Bracket) -> _Counts:
    """The counts for a bracket with these numbers (m,); many may equal its bounds, and those are only counted."""
    at_low, at_high = (candidates == candidates.dtype.type(bound) for bound in (bracket.low, bracket.high))
    upper = int(np.count_nonzero(at_high & ~at_low))
    return _Counts(below, int(np.count_nonzero(at_low)), upper, candidates[~(at_low | at_high)])


def _sample_rows(rows: Rows) -> tuple[list[NDArray[Any]], int]:
    """Every SAMPLE_STRIDE-th number of each row, K arrays (m,), and the length of a row."""
    total = 0

    def sampled() -> Iterator[Tensor]:
        nonlocal total
        for piece in rows():
            flat = piece.reshape(piece.shape[0], -1)
            # The first position from which the stride of the earlier pieces continues.
            yield flat[:, -total % SAMPLE_STRIDE :: SAMPLE_STRIDE]
            total += flat.shape[1]

    return _collect_rows(sampled()), total


def _collect_rows(pieces: Iterable[Tensor]) -> list[NDArray[Any]]:
    """K rows (m,), each joined from its parts in the pieces (K, n)."""
    piles: list[_GrowingArray] = []
    for piece in pieces:
        piles = piles or [_GrowingArray() for _ in piece]
        for pile, row in zip(piles, piece.cpu().numpy(), strict=True):
            pile.add(row)
    return [pile.values for pile in piles]


def _bracket_rank(sample: NDArray[Any], rank: int, total: int) -> _Bracket:
    size = len(sample)
    share = rank / total
    margin = SIGMAS * max(math.sqrt(size * share * (1 - share)), _estimate_unevenness(sample, share)) + 2
    low, high = math.floor(share * size - margin), math.ceil(share * size + margin)
    return _Bracket(
        rank=rank,
        low=_value_at_rank(sample, low) if low >= 0 else 0.0,
        high=_value_at_rank(sample, high) if high < size else math.inf,
    )


def _value_at_rank(values: NDArray[Any], rank: int) -> float:
    """The value of a rank; numpy takes ten times as long for two ranks in one call."""
    return float(np.partition(values, rank)[rank])


def _estimate_unevenness(sample: NDArray[Any], share: float) -> float:
    """The standard error of how many numbers of a sample are below a quantile, if neighboring numbers are alike.

    It is estimated from the differences between neighboring groups; 0 if there are too few groups.
    """
    length = len(sample) // GROUP_SIZE * GROUP_SIZE
    if length < MIN_GROUPS * GROUP_SIZE:
        return 0.0
    sparse = sample[::QUANTILE_STRIDE]
    estimate = _value_at_rank(sparse, int(share * (len(sparse) - 1)))
    counts = np.count_nonzero(sample[:length].reshape(-1, GROUP_SIZE) < estimate, axis=1)
    return float(np.sqrt(np.square(np.diff(counts)).mean() / 2 * len(counts)))
