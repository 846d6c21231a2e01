"""Contexts: parts of one fraction, whose reports they are, and who is asked to stop or to pause."""

from __future__ import annotations

import threading

import pytest

from merging.base.errors import Cancelled
from merging.base.progress import Progress
from merging.tasks.context import QUIET, Context


def test_parts_are_one_fraction_by_their_weights() -> None:
    said, stop = list[Progress](), threading.Event()
    parts = Context("cpu", said.append, stop).split({"merge": 1.0, "evaluate": 3.0})
    assert list(parts) == ["merge", "evaluate"] and {part.device for part in parts.values()} == {"cpu"}
    parts["merge"].meter(2).advance(1, "Merging", "a tensor")
    parts["evaluate"].with_title("Run 2 of 2").meter(3).advance(2, "Evaluating")
    assert [report.fraction for report in said] == [0.125, 0.75]
    assert [report.phase for report in said] == ["Merging", "Run 2 of 2: Evaluating"] and said[0].detail == "a tensor"
    parts["merge"].without_progress().meter(1).advance(1, "Merging")
    assert len(said) == 2
    stop.set()
    part = parts["merge"]
    for context in (part, part.with_title("Run"), part.without_progress(), part.on_device("meta")):
        with pytest.raises(Cancelled):
            context.check()


def test_without_listeners_nothing_is_reported_and_nothing_stops() -> None:
    assert QUIET.with_title("Run") is QUIET and QUIET.split({"a": 1.0})["a"] == QUIET == QUIET.without_progress()
    QUIET.meter(1).advance(1, "Merging")
    QUIET.check()
    assert not QUIET.is_pause_requested()


def test_a_pause_is_asked_for_each_time_and_ends_nothing() -> None:
    answers = iter((False, True))
    context = Context(pause=lambda: next(answers)).on_device("cpu")
    assert context.device == "cpu" and [context.is_pause_requested(), context.is_pause_requested()] == [False, True]
    context.check()
