"""How a job ended, by its child's exit code and last event, with a sentence that explains it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from merging.tasks.queue.child_process import describe_end
from merging.tasks.queue.events import CODE_KEY, ERROR_KEY, RESUME_HINT
from merging.tasks.queue.job_kinds import JobStore, find_job_kind
from merging.tasks.queue.job_records import SILENT_SECONDS, JobFiles, Record, State

PAUSED_CODE = 75
FINAL_STATES = {0: State.DONE, PAUSED_CODE: State.PAUSED, 130: State.CANCELLED}  # exit code -> state
LEARNED_NOTE = "What it learned until a moment before is stored; started again, it continues from there."
NOTHING_STORED_NOTE = "Nothing half-done was stored."
FULL_DISK_ERROR = "The disk that holds the runs is full. Free some space, and start the job again."
UNKNOWN_END_ERROR = (
    "Mergescope was stopped, and the disk is full, so the outcome of this job is not known. Start it again."
)
LOG_HINT = "see log.txt in its folder."


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRemains:
    """What a job has left on the disk.

    ``event`` is the child's last event. ``is_run_stored`` is whether the run of a merge is in the store,
    ``has_learned_state`` whether its learned state is stored, ``was_started`` whether its child was started,
    ``has_following_recipe`` whether a recipe was to be submitted after the command, ``is_disk_full`` whether the disk
    is full, so that the child may have failed to write its last event.
    """

    event: Mapping[str, Any] = field(default_factory=dict)
    is_run_stored: bool = False
    has_learned_state: bool = False
    was_started: bool = False
    has_following_recipe: bool = False
    is_disk_full: bool = False


def find_remains(files: JobFiles, record: Record, store: JobStore) -> JobRemains:
    """What a job has left in its folder and in the store."""
    return JobRemains(
        event=files.read_last_event(),
        is_run_stored=find_job_kind(record.kind).in_store and is_run_stored(store, files, record),
        has_learned_state=store.learning_file(files.job_id).exists(),
        was_started=record.started is not None or files.was_started(),
        has_following_recipe=bool(record.words and files.recipe_yaml()),
        is_disk_full=files.is_disk_full(),
    )


def is_run_stored(store: JobStore, files: JobFiles, record: Record) -> bool:
    """Whether the run of a merge is stored, even if another computer has stored it on a shared disk only just now."""
    if record.owner.is_remote and time.time() - (record.finished or time.time()) < SILENT_SECONDS:
        return store.find_on_shared_disk(files.job_id) is not None
    return store.find(files.job_id) is not None


def determine_final_state(
    files: JobFiles, store: JobStore, code: int, stopped: bool, closing: bool, memory_ran_out: bool
) -> tuple[State, str]:
    """The final state of a job by its child's exit code, and the reason for a failure.

    ``stopped`` is whether the queue has stopped it, ``closing`` whether the queue is closing, ``memory_ran_out``
    whether memory ran out meanwhile.
    """
    if (record := files.read()) is None:
        return State.CANCELLED, ""
    if stopped and closing and code != 0:
        return State.INTERRUPTED, ""
    if code != 0 and (stopped or files.is_cancelled()):
        store.delete_learned_state(files.job_id)
        return State.CANCELLED, _explain_stop(record, find_remains(files, record, store))
    return state_of_exit_code(record, find_remains(files, record, store), code, memory_ran_out)


def state_of_exit_code(
    record: Record, remains: JobRemains, code: int, memory_ran_out: bool = False
) -> tuple[State, str]:
    """The final state of a job whose child returned an exit code or was killed (a negative code), and the reason.

    ``memory_ran_out`` is whether memory ran out while it worked.
    """
    if code == 0 and find_job_kind(record.kind).in_store and not remains.is_run_stored:
        changed = "a file of its recipe may have changed since it was submitted"
        return State.FAILED, f"It ended with code 0, but its run is not stored: {changed}; {LOG_HINT}"
    if code in FINAL_STATES:
        return FINAL_STATES[code], _explain_stop(record, remains) if code else ""
    end = describe_end("It", code, memory_ran_out, LOG_HINT)
    reason = remains.event.get(ERROR_KEY) or (FULL_DISK_ERROR if remains.is_disk_full else end)
    return State.FAILED, f"{end} {_describe_remains(record, remains)}" if code < 0 else str(reason)


def _explain_stop(record: Record, remains: JobRemains) -> str:
    """The child's sentence on why it stopped and what is stored; empty if it just stopped on request."""
    # A pause whose learned state is stored needs no sentence.
    paused = remains.event.get(CODE_KEY) == PAUSED_CODE and not remains.has_learned_state
    explained = paused or find_job_kind(record.kind).remains_note
    return str(remains.event.get(ERROR_KEY, "")).removesuffix(RESUME_HINT) if explained else ""


def _describe_remains(record: Record, remains: JobRemains) -> str:
    """A sentence on what remains of a job that has stopped."""
    return LEARNED_NOTE if remains.has_learned_state else find_job_kind(record.kind).remains_note or NOTHING_STORED_NOTE


def state_of_abandoned_job(record: Record, remains: JobRemains) -> tuple[State, str]:
    """The state of an unfinished job whose server and child are gone, and a sentence on it unless the job is done."""
    if remains.is_run_stored:
        return State.DONE, ""
    code = remains.event.get(CODE_KEY)
    if isinstance(code, int) and not (code == 0 and remains.has_following_recipe):
        return state_of_exit_code(record, remains, code)
    if code == 0:
        return State.INTERRUPTED, "Mergescope was stopped before it could submit the recipe that follows."
    return State.INTERRUPTED, describe_interruption(record, remains)


def describe_interruption(record: Record, remains: JobRemains) -> str:
    """A sentence on a job whose child wrote no last event, perhaps because the disk is full."""
    if not (remains.was_started or remains.event):
        return UNKNOWN_END_ERROR if remains.is_disk_full else "Mergescope was stopped before this job's turn came."
    return f"Mergescope or the process of this job was stopped. {_describe_remains(record, remains)}"
