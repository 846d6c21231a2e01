"""The exact k-th smallest of numbers that are only ever streamed.

A strided sample brackets the value, one more pass counts what lies below the bracket and keeps what lies inside (well
under one percent), and a selection among the kept numbers gives the exact answer. A bracket that misses is widened and
the pass repeated, so the result never depends on luck.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

SAMPLE_STRIDE = 61  # prime, so that it does not lock onto the period of a matrix's rows
SIGMAS = 5.0  # half width of a bracket in standard errors of a sample quantile

Rows = Callable[[], Iterable[Tensor]]  # streams (K, n) pieces of K rows, anew at each call


@dataclass(slots=True)
class _Bracket:
    """Where one row's answer lies: ``low <= answer <= high``, and what a pass found there."""

    rank: int  # 0-based
    low: float
    high: float
    below: int = 0
    at_low: int = 0
    at_high: int = 0
    inside: list[Tensor] = field(default_factory=list)

    def look(self, values: Tensor) -> None:
        """Count ``values`` (n,) against the bracket and keep those strictly inside."""
        self.below += int((values < self.low).sum())
        candidates = values[(values >= self.low) & (values <= self.high)]
        at_low, at_high = candidates == self.low, candidates == self.high
        self.at_low += int(at_low.sum())
        if self.high > self.low:
            self.at_high += int(at_high.sum())
            self.inside.append(candidates[~(at_low | at_high)])

    def answer(self) -> float | None:
        """The exact value, or None after moving the bracket to the side where it must lie."""
        inside = sum(len(piece) for piece in self.inside)
        position = self.rank - self.below
        if position < 0:
            self._move(0.0, math.nextafter(self.low, -math.inf))
            return None
        if position < self.at_low:
            return self.low
        if position < self.at_low + inside:
            kept = torch.cat(self.inside)
            return float(torch.kthvalue(kept.cpu(), position - self.at_low + 1).values)
        if position < self.at_low + inside + self.at_high:
            return self.high
        self._move(math.nextafter(self.high, math.inf), math.inf)
        return None

    def _move(self, low: float, high: float) -> None:
        self.low, self.high = low, high
        self.below = self.at_low = self.at_high = 0
        self.inside = []


def kth_smallest(rows: Rows, ranks: Sequence[int]) -> list[float]:
    """For each of K rows of non-negative numbers, its value of 0-based rank ``ranks[k]`` in ascending order.

    ``rows()`` streams the rows in pieces (K, n), finite, any float dtype; it is called two times, rarely more.
    Ranks beyond the end give the largest value.
    """
    sample, total = _sample(rows)
    if total == 0:
        return [0.0 for _ in ranks]
    brackets = [_bracket(sample[k], min(rank, total - 1), total) for k, rank in enumerate(ranks)]
    answers: list[float | None] = [None] * len(brackets)
    while None in answers:
        for piece in rows():
            for k, bracket in enumerate(brackets):
                if answers[k] is None:
                    bracket.look(piece[k].reshape(-1))
        answers = [known if known is not None else brackets[k].answer() for k, known in enumerate(answers)]
    return [value for value in answers if value is not None]


def _sample(rows: Rows) -> tuple[Tensor, int]:
    """Every 61st number of each row, sorted (K, m), and the length of a row."""
    pieces, total = [], 0
    for piece in rows():
        flat = piece.reshape(piece.shape[0], -1)
        first = -total % SAMPLE_STRIDE
        pieces.append(flat[:, first::SAMPLE_STRIDE].clone())
        total += flat.shape[1]
    return torch.cat(pieces, dim=1).sort(dim=1).values, total


def _bracket(sample: Tensor, rank: int, total: int) -> _Bracket:
    size = len(sample)
    share = rank / total
    margin = SIGMAS * math.sqrt(size * share * (1 - share)) + 2
    low, high = math.floor(share * size - margin), math.ceil(share * size + margin)
    return _Bracket(
        rank=rank,
        low=float(sample[low]) if low >= 0 else 0.0,
        high=float(sample[high]) if high < size else math.inf,
    )
