"""What `make test` samples of many cases, stages or sizes; `make test-all` runs the others, which are marked `full`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

import pytest

EVERY_STAGE = pytest.mark.parametrize(
    "every", [False, pytest.param(True, marks=pytest.mark.full)], ids=["two stages", "every stage"]
)


def some_of(every: Iterable[str], *daily: str) -> list[Any]:
    """All of them as parameters of a test; those that are not ``daily`` are left to `make test-all`."""
    return [name if name in daily else pytest.param(name, marks=pytest.mark.full) for name in every]


def sampled(stages: Sequence[int], every: bool, seed: str) -> list[int]:
    """Two of the stages, always the same for a seed, or all of them."""
    return list(stages) if every else sorted(Random(seed).sample(list(stages), 2))
