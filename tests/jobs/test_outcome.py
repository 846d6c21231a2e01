"""How a job ended, and how one that nobody saw the end of is judged after a restart."""

from __future__ import annotations

from typing import Any

import pytest

from merging.files.processes import NOBODY
from merging.jobs.outcome import left_behind, outcome
from merging.jobs.records import MERGE, SWEEP, Record, State


def record(kind: str, **fields: Any) -> Record:
    return Record(State.RUNNING, "A job", "/", False, 1.0, NOBODY, kind=kind, subject="0" * 12, **fields)


@pytest.mark.parametrize(
    ("kind", "event", "stored", "follows", "state"),
    [
        (MERGE, {}, True, False, State.DONE),  # killed after its run was stored, before it could say so
        (MERGE, {}, False, False, State.INTERRUPTED),
        (MERGE, {"code": 1, "error": "No."}, False, False, State.FAILED),
        (SWEEP, {"code": 75}, False, False, State.PAUSED),
        ("export-hf", {"code": 0}, False, False, State.DONE),
        ("benchmark-make", {"code": 0}, False, True, State.INTERRUPTED),
    ],
)
def test_a_job_that_nobody_saw_end(kind: str, event: dict[str, Any], stored: bool, follows: bool, state: State) -> None:
    found, sentence = left_behind(record(kind), event, stored, follows)
    assert found == state and bool(sentence) == (state in {State.INTERRUPTED, State.FAILED})


def test_what_became_of_a_job_is_said_only_where_it_is_known() -> None:
    def said(event: dict[str, Any], **known: bool) -> str:
        return left_behind(record(MERGE), event, False, False, **known)[1]

    assert "before this job's turn came" in said({})
    assert "is not known" in said({}, full=True)
    for begun in (said({"phase": "Merging"}, full=True), said({}, started=True, full=True), said({}, started=True)):
        assert begun == "Mergescope or the process of this job was stopped. Nothing half-done was kept."


def test_a_full_disk_is_named_where_the_child_could_write_nothing() -> None:
    assert "disk" in outcome(record(SWEEP), {}, 1, False, full=True)[1]
    assert "code 1" in outcome(record(SWEEP), {}, 1, False)[1]
    assert outcome(record(SWEEP), {"error": "No."}, 1, False, full=True)[1] == "No."


def test_a_killed_job_ran_out_of_memory_only_where_something_shows_it() -> None:
    assert "It was killed; nothing shows that memory ran out. " in outcome(record(SWEEP), {}, -9, False)[1]
    assert "likely because the computer ran out of memory" in outcome(record(SWEEP), {}, -9, False, ran_out=True)[1]
