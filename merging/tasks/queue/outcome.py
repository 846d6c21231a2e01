"""How a job ended, from the exit code and the last words of its child, and the sentences that say it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from merging.tasks.queue.child_process import describe_end
from merging.tasks.queue.events import CODE, ERROR, GOES_ON
from merging.tasks.queue.job_kinds import JobStore, find_job_kind
from merging.tasks.queue.job_records import SILENT, JobFiles, Record, State

PAUSED_CODE = 75
ENDS = {0: State.DONE, PAUSED_CODE: State.PAUSED, 130: State.CANCELLED}
LEARNED = "What it learned until a moment before is kept; started again, it goes on from there."
NOTHING = "Nothing half-done was kept."
FULL = "The disk that holds the runs is full. Free some space, and start the job again."
UNKNOWN = "Mergescope was stopped, and the disk is full: what became of this job is not known. Start it again."
LOG = "see log.txt in its folder."


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    """What a job has left on the disk.

    ``event`` is the child's last line; ``stored`` says whether the run of a merge is in the store, ``learned`` whether
    what it learned so far is kept, ``started`` that its turn had come, ``follows`` that a recipe was to be submitted
    after the command, and ``full`` that the disk is full, so that the child could not write its last line.
    """

    event: Mapping[str, Any] = field(default_factory=dict)
    stored: bool = False
    learned: bool = False
    started: bool = False
    follows: bool = False
    full: bool = False


def find_traces(files: JobFiles, record: Record, store: JobStore) -> Traces:
    """What a job has left on the disk."""
    return Traces(
        event=files.read_last_event(),
        stored=find_job_kind(record.kind).in_store and is_made(store, files, record),
        learned=store.learning_file(files.job_id).exists(),
        started=record.started is not None or files.was_started(),
        follows=bool(record.words and files.recipe_yaml()),
        full=files.disk_is_full(),
    )


def is_made(store: JobStore, files: JobFiles, record: Record) -> bool:
    """Whether the run of a merge is stored; one that another computer has just made may be seen a little later."""
    if record.owner.is_remote and time.time() - (record.finished or time.time()) < SILENT:
        return store.find_promised(files.job_id) is not None
    return store.find(files.job_id) is not None


def judge_end(
    files: JobFiles, store: JobStore, code: int, stopped: bool, closing: bool, ran_out: bool
) -> tuple[State, str]:
    """How a job ended whose child gave an exit code, and why it failed.

    ``stopped`` says whether the queue has stopped it, ``ran_out`` whether memory did meanwhile.
    """
    if (record := files.read()) is None:
        return State.CANCELLED, ""
    if stopped and closing and code != 0:
        return State.INTERRUPTED, ""
    if code != 0 and (stopped or files.is_cancelled()):
        store.delete_learned(files.job_id)
        return State.CANCELLED, _explain_stop(record, find_traces(files, record, store))
    return judge_code(record, find_traces(files, record, store), code, ran_out)


def judge_code(record: Record, traces: Traces, code: int, ran_out: bool = False) -> tuple[State, str]:
    """How a job ended whose child gave an exit code or was killed (a negative code), and why it failed.

    ``ran_out`` says whether memory ran out while it worked.
    """
    if code == 0 and find_job_kind(record.kind).in_store and not traces.stored:
        changed = "a file of its recipe may have changed since it was submitted"
        return State.FAILED, f"It ended with code 0, but its run is not stored: {changed}; {LOG}"
    if code in ENDS:
        return ENDS[code], _explain_stop(record, traces) if code else ""
    end = describe_end("It", code, ran_out, LOG)
    said = traces.event.get(ERROR) or (FULL if traces.full else end)
    return State.FAILED, f"{end} {_say_what_stays(record, traces)}" if code < 0 else str(said)


def _explain_stop(record: Record, traces: Traces) -> str:
    """What the child said of why it stopped and what is kept; empty where it stopped as it was asked to."""
    paused = traces.event.get(CODE) == PAUSED_CODE and not traces.learned
    explained = paused or find_job_kind(record.kind).kept_note
    return str(traces.event.get(ERROR, "")).removesuffix(GOES_ON) if explained else ""


def _say_what_stays(record: Record, traces: Traces) -> str:
    return LEARNED if traces.learned else find_job_kind(record.kind).kept_note or NOTHING


def judge_left(record: Record, traces: Traces) -> tuple[State, str]:
    """The state of an unfinished job whose server and child are gone, and a sentence unless it is done all the same."""
    if traces.stored:
        return State.DONE, ""
    code = traces.event.get(CODE)
    if isinstance(code, int) and not (code == 0 and traces.follows):
        return judge_code(record, traces, code)
    if code == 0:
        return State.INTERRUPTED, "Mergescope was stopped before it could submit what follows."
    return State.INTERRUPTED, describe_interruption(record, traces)


def describe_interruption(record: Record, traces: Traces) -> str:
    """What happened to a job that ended without a word; on a full disk it may not have had room for one."""
    if not (traces.started or traces.event):
        return UNKNOWN if traces.full else "Mergescope was stopped before this job's turn came."
    return f"Mergescope or the process of this job was stopped. {_say_what_stays(record, traces)}"
