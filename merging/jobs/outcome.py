"""How a job ended, from the exit code and the last words of its child, and the sentences that say it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from merging.jobs.child_process import describe_end
from merging.jobs.events import CODE, ERROR, GOES_ON
from merging.jobs.records import MERGE, PUBLISHED, SWEEP, JobFiles, Record, State
from merging.runs.store import Store

PAUSED_CODE = 75
ENDS = {0: State.DONE, PAUSED_CODE: State.PAUSED, 130: State.CANCELLED}
KEPT = {
    SWEEP: "The points computed so far are kept.",
    PUBLISHED: "What was fetched and computed so far is kept; started again, it goes on from there.",
}
LEARNED = "What it learned until a moment before is kept; started again, it goes on from there."
NOTHING = "Nothing half-done was kept."
FULL = "The disk that holds the runs is full. Free some space, and start the job again."
UNKNOWN = "Mergescope was stopped, and the disk is full: what became of this job is not known. Start it again."
LOG = "see log.txt in its folder."


def ended(files: JobFiles, store: Store, code: int, stopped: bool, closing: bool, ran_out: bool) -> tuple[State, str]:
    """How a job ended whose child gave an exit code, and why it failed.

    ``stopped`` says whether the queue has stopped it, ``ran_out`` whether memory did meanwhile.
    """
    if (record := files.read()) is None:
        return State.CANCELLED, ""
    if stopped and closing and code != 0:
        return State.INTERRUPTED, ""
    if code != 0 and (stopped or files.is_cancelled()):
        store.forget_learned(files.job_id)
        return State.CANCELLED, _stated(record, files.last_event(), False)
    stored = record.kind == MERGE and store.has(files.job_id)
    learned = store.learned_so_far(files.job_id).exists()
    return outcome(record, files.last_event(), code, stored, files.disk_is_full(), learned, ran_out)


def outcome(
    record: Record, event: Mapping[str, Any], code: int, stored: bool, full: bool = False, learned: bool = False,
    ran_out: bool = False,
) -> tuple[State, str]:  # fmt: skip
    """How a job ended whose child gave an exit code or was killed (a negative code), and why it failed.

    ``event`` is the child's last line; ``stored`` says whether the run of a merge is in the store, ``full`` whether the
    disk is full, so that the child could not write its last line, ``learned`` whether what it learned so far is kept,
    ``ran_out`` whether memory ran out while it worked.
    """
    if code == 0 and record.kind == MERGE and not stored:
        changed = "a file of its recipe may have changed since it was submitted"
        return State.FAILED, f"It ended with code 0, but its run is not stored: {changed}; {LOG}"
    if code in ENDS:
        return ENDS[code], _stated(record, event, learned) if code else ""
    kept = LEARNED if learned else KEPT.get(record.kind, NOTHING)
    end = describe_end("It", code, ran_out, LOG)
    return State.FAILED, f"{end} {kept}" if code < 0 else str(event.get(ERROR) or (FULL if full else end))


def _stated(record: Record, event: Mapping[str, Any], learned: bool) -> str:
    """What the child said of why it stopped and what is kept; empty where it stopped as it was asked to."""
    paused = event.get(CODE) == PAUSED_CODE and not learned
    stated = paused or record.kind in (PUBLISHED, SWEEP)
    return str(event.get(ERROR, "")).removesuffix(GOES_ON) if stated else ""


def left_behind(
    record: Record,
    event: Mapping[str, Any],
    stored: bool,
    follows: bool,
    learned: bool = False,
    started: bool = False,
    full: bool = False,
) -> tuple[State, str]:
    """The state of an unfinished job whose server and child are gone, and a sentence unless it was done all the same.

    ``follows`` says that a recipe was to be submitted after the command, ``started`` that its turn had come;
    ``learned`` and ``full`` are as in ``outcome``.
    """
    if record.kind == MERGE and stored:
        return State.DONE, ""
    code = event.get(CODE)
    if isinstance(code, int) and not (code == 0 and follows):
        return outcome(record, event, code, stored, learned=learned)
    if code == 0:
        return State.INTERRUPTED, "Mergescope was stopped before it could submit what follows."
    return State.INTERRUPTED, interruption(record, started or bool(event), learned, full)


def interruption(record: Record, started: bool, learned: bool = False, full: bool = False) -> str:
    """What happened to a job that ended without a word; on a ``full`` disk it may not have had room for one."""
    if not started:
        return UNKNOWN if full else "Mergescope was stopped before this job's turn came."
    kept = LEARNED if learned else KEPT.get(record.kind, NOTHING)
    return f"Mergescope or the process of this job was stopped. {kept}"
