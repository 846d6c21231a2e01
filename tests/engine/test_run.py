"""What a call of the engine promises: progress to the end, a cancel within one tensor, a device that is there."""

from __future__ import annotations

import threading

import pytest
import tiny

import merging
from merging.errors import Cancelled, MergingError


def test_progress_reaches_the_end_and_never_goes_back():
    base, experts = tiny.family()
    seen = []
    merging.merge(base, experts, "ties", edits=["lwptv"], progress=seen.append)
    fractions = [p.fraction for p in seen]
    assert fractions == sorted(fractions) and fractions[-1] == 1.0
    assert {p.phase for p in seen} >= {"Surveying for LwPTV", "Surveying for TIES", "Merging with TIES"}


def test_cancel_stops_within_one_tensor():
    base, experts = tiny.family()
    stop, seen = threading.Event(), []

    def progress(p):
        seen.append(p.detail)
        if len(seen) == 5:
            stop.set()

    with pytest.raises(Cancelled):
        merging.merge(base, experts, progress=progress, cancel=stop)
    assert len(seen) == 5


def test_an_unknown_device_is_a_sentence():
    base, experts = tiny.family(("a",))
    with pytest.raises(MergingError, match="'cuda:99' is not available"):
        merging.merge(base, experts, device="cuda:99")
