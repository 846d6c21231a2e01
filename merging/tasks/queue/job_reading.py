"""Reads a job from its files, and derives the state of a job whose process is gone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from merging.base.files.processes import NO_PROCESS, ProcessId
from merging.tasks.queue.events import CODE_KEY
from merging.tasks.queue.job_kinds import JobStore, find_job_kind
from merging.tasks.queue.job_records import Job, JobFiles, Record, State
from merging.tasks.queue.outcome import (
    JobRemains,
    describe_interruption,
    find_remains,
    is_run_stored,
    state_of_abandoned_job,
)


def read_job(
    files: JobFiles, store: JobStore, position: int, is_local: bool, starts_in: float | None = None
) -> Job | None:
    """The job in a folder; None if there is none, or if its run was deleted.

    ``position`` is its position in this process's queue, from 1, 0 if it is not in it; ``starts_in`` is the seconds
    until it should begin; ``is_local`` is whether this process has the job in its queue or runs it.
    """
    record = files.read()
    if record is None:
        return None
    state, error, process = _find_state(files, record, store, is_local)
    if state == State.DONE and find_job_kind(record.kind).in_store and not is_run_stored(store, files, record):
        return None
    event = files.read_last_event()
    return Job(
        id=files.job_id,
        title=record.title,
        state=state,
        phase=str(event.get("phase", _name_phase(event) if state == State.RUNNING else "")),
        detail=str(event.get("detail", "")),
        fraction=1.0 if state == State.DONE else float(event.get("fraction", 0.0)),
        seconds_left=event.get("seconds_left") if state == State.RUNNING else None,
        position=position,
        error=error,
        submitted=record.submitted,
        started=record.started,
        finished=record.finished,
        recipe_yaml=files.recipe_yaml(),
        kind=record.kind,
        subject=record.subject,
        words=record.words,
        benchmark=record.benchmark,
        halted_pid=process.pid if process.is_halted() else 0,
        seconds_until_start=starts_in,
        is_remote=process.is_remote,
        is_resumable=state == State.PAUSED or (state != State.DONE and _has_resumable_state(files, record, store)),
        followed_by=files.list_ordered(),
    )


def _has_resumable_state(files: JobFiles, record: Record, store: JobStore) -> bool:
    """Whether a job has left a state from which it can continue."""
    kind = find_job_kind(record.kind)
    if kind.in_store:
        return store.learning_file(files.job_id).exists()
    return bool(kind.remains_note) and record.started is not None


def _name_phase(event: Mapping[str, Any]) -> str:
    """The phase of a running child whose last event names none: it is the first or the last event."""
    return "Ending" if CODE_KEY in event else "Starting"


def _find_state(files: JobFiles, record: Record, store: JobStore, is_local: bool) -> tuple[State, str, ProcessId]:
    """The state of a job, a sentence about it, and the process that works on the job or has it in its queue."""
    if record.state == State.INTERRUPTED:
        learned = store.learning_file(files.job_id).exists()
        remains = JobRemains(has_learned_state=learned, was_started=record.started is not None)
        return record.state, record.error or describe_interruption(record, remains), NO_PROCESS
    if record.state not in {State.QUEUED, State.RUNNING}:
        return record.state, record.error, NO_PROCESS
    if record.state == State.QUEUED and files.is_cancelled():
        return State.CANCELLED, "", NO_PROCESS
    if record.state == State.QUEUED and (
        is_local or record.owner.works_in_another_process() or _has_written_lately(record.owner, files)
    ):
        return State.QUEUED, "", NO_PROCESS if is_local else record.owner
    worker = files.find_worker(record)
    if is_local or worker.is_alive() or _has_written_lately(worker, files):
        return State.RUNNING, "", worker
    return *state_of_abandoned_job(record, find_remains(files, record, store)), NO_PROCESS


def _has_written_lately(process: ProcessId, files: JobFiles) -> bool:
    """Whether a process is on another computer, and it or its server there has written lately."""
    return process.is_remote and not files.is_silent()
