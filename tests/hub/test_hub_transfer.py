"""Several fetches as one: bytes of all of them, the rate of late, and the time left."""

from __future__ import annotations

import pytest

from merging.base.progress import Progress
from merging.models.hub import fetch_progress
from merging.models.hub.fetch_progress import FetchProgress
from merging.tasks.context import QUIET, Context


def test_bytes_of_all_fetches_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    now, seen = [100.0], list[Progress]()
    monkeypatch.setattr(fetch_progress.time, "monotonic", lambda: now[0])
    together = FetchProgress(4000, Context(progress=seen.append))
    first = together.next_context().progress
    assert first is not None
    for now[0], done in ((100.1, 100), (101.0, 1000)):
        first(Progress("Fetching", done, 1000, None, "a config.json"))
    assert seen[0].detail == "100 bytes of 4 kB: a config.json" and seen[0].seconds_left is None
    assert seen[1].detail == "1 kB of 4 kB, 1 kB/s: a config.json" and seen[1].seconds_left == 3.0
    second, now[0] = together.next_context().progress, 120.0
    assert second is not None
    second(Progress("Fetching", 1000, 3000, None, " "))
    second(Progress("Fetching", 2000, 3000, None, ""))
    assert (seen[-1].done, seen[-1].total) == (3000, 4000) and seen[-1].detail.startswith("3 kB of 4 kB, ")
    now[0] = 130.0
    second(Progress("Fetching", 5000, 5000, None, ""))
    assert (seen[-1].done, seen[-1].total, seen[-1].seconds_left) == (6000, 6000, 0.0)  # more came than was known
    third = together.next_context().progress
    assert third is not None
    third(Progress("Fetching", 500, 500, None, ""))
    assert seen[-1].done == 6500
    assert FetchProgress(1, QUIET).next_context() is QUIET
