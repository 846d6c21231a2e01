"""The trim of TIES and its election of signs, as methods and the statistics of experts use them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Counts = NDArray[np.int64]


class Election(NamedTuple):
    """An election of signs between K experts.

    ``kept`` (K,) counts the entries that the trim keeps. Of these, ``agreeing`` (K,) counts entries with the elected
    sign, and ``tied`` (2, K) counts negative and positive entries at exact ties. ``votes`` is the sum of the elected
    signs (-1, 0 or 1) of all scalars; its sign can later decide the exact ties, as ``tie_sign``.
    """

    kept: Counts
    agreeing: Counts
    tied: Counts
    votes: int

    def count_survivors(self, tie_sign: float) -> Counts:
        """Numbers of kept entries that survive (K,) if exact ties elect ``tie_sign``; 0 elects none."""
        at_ties: Counts = self.tied[int(tie_sign > 0)] if tie_sign else np.zeros_like(self.agreeing)
        return np.add(self.agreeing, at_ties)


def trim_rank(numel: int, density: float) -> int:
    """0-based rank, in ascending order, of the smallest scalar that is kept.

    Of d scalars, int(d·ρ) + 1 and their ties are kept, as in the published code of TIES.
    """
    return max(numel - int(numel * density) - 1, 0)


def trim_vectors(vectors: Tensor, thresholds: Sequence[float] | None) -> Tensor:
    """Task vectors (K, *S) with all entries below their expert's threshold set to zero; unchanged for None."""
    if thresholds is None:
        return vectors
    # hardshrink drops |x| <= limit in one pass; the limit just below the threshold keeps the threshold itself.
    limits = [_round_just_below(threshold, vectors.dtype) for threshold in thresholds]
    kept = torch.empty_like(vectors)
    for row, limit, out in zip(vectors, limits, kept, strict=True):
        torch.hardshrink(row, limit, out=out)
    return kept


@lru_cache(maxsize=1024)
def _round_just_below(threshold: float, dtype: torch.dtype) -> float:
    return float(torch.nextafter(torch.tensor(threshold, dtype=dtype), torch.tensor(-1.0, dtype=dtype)))


def trim_at_densities(
    tensors: Tensor, densities: Sequence[float], rank_of_smallest: Callable[[int, float], int] = trim_rank
) -> Iterator[Tensor]:
    """For each density in turn, the tensors (K, *S), each with all of its entries but the largest replaced by zero.

    ``rank_of_smallest(numel, density)`` is the rank of the smallest kept entry. Entries that tie with
    it are kept, too. At density 1 all entries are kept.
    """
    numel = tensors[0].numel()
    if not numel:
        yield from [tensors] * len(densities)
        return
    ranks = [max(rank_of_smallest(numel, density), 0) for density in densities]
    sizes = tensors.abs().reshape(len(tensors), -1).cpu().numpy()
    smallest = np.partition(sizes, sorted(set(ranks)), axis=1)[:, ranks].T
    for density, row in zip(densities, smallest.tolist(), strict=True):
        yield trim_vectors(tensors, row if density < 1 else None)


def elect_sign(kept: Tensor, tie_sign: float) -> Tensor:
    """The elected signs (*S): those of the sums over K of ``kept`` (K, *S); exact ties take ``tie_sign``."""
    sign = kept.sum(dim=0).sign()
    return sign + tie_sign * (1 - sign.abs())


def count_election(kept: Tensor) -> Election:
    """The election between trimmed task vectors ``kept`` (K, *S)."""
    sign, signs = elect_sign(kept, 0.0), kept.sign()
    tied = signs * (sign == 0)
    groups = (signs != 0, signs * sign > 0, tied < 0, tied > 0)
    kept_counts, agreeing, minus, plus = (group.flatten(1).sum(dim=1).cpu().numpy() for group in groups)
    return Election(kept_counts, agreeing, np.stack([minus, plus]), int(sign.sum(dtype=torch.int64).cpu()))
