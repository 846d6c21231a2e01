"""The sign election of TIES for one layer: how many of each expert's entries survive the trim and win."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Counts = NDArray[np.int64]


class Election(NamedTuple):
    """Per expert (K,): entries kept by the trim, and how many of them have the elected sign."""

    kept: Counts
    won: Counts


def trimmed(tensors: Tensor, densities: Sequence[float]) -> Iterator[Tensor]:
    """For each density in turn, the tensors (K, *S) with all but the largest entries of each set to zero.

    round(ρN) + 1 of N entries and ties survive at density ρ, all at 1; zeros never do.
    """
    sizes = tensors.abs()
    count, numel = len(tensors), sizes[0].numel()
    if not numel:
        yield from [tensors] * len(densities)
        return
    ranks = [max(numel - round(density * numel) - 1, 0) for density in densities]
    smallest_kept = np.partition(sizes.reshape(count, -1).cpu().numpy(), sorted(set(ranks)), axis=1)[:, ranks].T
    for density, row in zip(densities, smallest_kept, strict=True):
        limits = tensors.new_tensor(row if density < 1 else np.zeros(count)).reshape(-1, *[1] * (tensors.ndim - 1))
        yield tensors * (sizes >= limits)


def elect(kept: Tensor) -> Election:
    """The election between trimmed tensors (K, *S): the sign of their sum wins; an exact tie elects no sign."""
    signs = kept.sign()
    elected = kept.sum(dim=0, dtype=torch.float64).sign().to(signs.dtype)
    won = (signs * elected > 0).flatten(1).sum(dim=1)
    return Election((signs != 0).flatten(1).sum(dim=1).cpu().numpy(), won.cpu().numpy())
