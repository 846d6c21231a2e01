"""How a job ended, and how one that nobody saw the end of is judged after a restart."""

from __future__ import annotations

from typing import Any

import pytest

from merging.base.files.processes import NO_PROCESS
from merging.tasks.queue.job_kinds import MERGE, SWEEP
from merging.tasks.queue.job_records import Record, State
from merging.tasks.queue.outcome import JobRemains, state_of_abandoned_job, state_of_exit_code


def record(kind: str, **fields: Any) -> Record:
    return Record(State.RUNNING, "A job", "/", False, 1.0, NO_PROCESS, kind=kind, subject="0" * 12, **fields)


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
    found, sentence = state_of_abandoned_job(
        record(kind), JobRemains(event=event, is_run_stored=stored, has_following_recipe=follows)
    )
    assert found == state and bool(sentence) == (state in {State.INTERRUPTED, State.FAILED})


def test_what_became_of_a_job_is_said_only_where_it_is_known() -> None:
    def said(event: dict[str, Any], **known: bool) -> str:
        return state_of_abandoned_job(record(MERGE), JobRemains(event=event, **known))[1]

    assert "before this job's turn came" in said({})
    assert "is not known" in said({}, is_disk_full=True)
    for begun in (
        said({"phase": "Merging"}, is_disk_full=True),
        said({}, was_started=True, is_disk_full=True),
        said({}, was_started=True),
    ):
        assert begun == "Mergescope or the process of this job was stopped. Nothing half-done was stored."


def test_what_a_merge_has_learned_is_kept_unless_nothing_is() -> None:
    assert state_of_exit_code(record(MERGE), JobRemains(), 75) == (State.PAUSED, "")
    assert "Nothing half-done" in state_of_exit_code(record(MERGE), JobRemains(), -9)[1]
    assert "What it learned" in state_of_exit_code(record(MERGE), JobRemains(has_learned_state=True), -9)[1]
    assert (
        "What it learned"
        in state_of_abandoned_job(record(MERGE), JobRemains(event={"phase": "Merging"}, has_learned_state=True))[1]
    )


@pytest.mark.parametrize(
    ("remains", "code", "ran_out", "says"),
    [
        (JobRemains(is_disk_full=True), 1, False, "The disk that holds the runs is full."),
        (JobRemains(), 1, False, "It ended with code 1; see log.txt in its folder."),
        (JobRemains(event={"error": "No."}, is_disk_full=True), 1, False, "No."),
        (JobRemains(), -9, False, "It was killed; nothing shows that memory ran out. The points computed so far are"),
        (JobRemains(), -9, True, "It was killed, likely because the computer ran out of memory. The points"),
        (JobRemains(), -6, True, "It was ended by SIGABRT; see log.txt in its folder. The points computed"),
    ],
)
def test_why_a_job_failed(remains: JobRemains, code: int, ran_out: bool, says: str) -> None:
    state, said = state_of_exit_code(record(SWEEP), remains, code, ran_out)
    assert state == State.FAILED and said.startswith(says)
