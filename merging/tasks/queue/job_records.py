"""The files of a job, and the child process that does its work.

<store>/jobs/<job id>/ holds recipe.yaml, state.json (written by the server that runs the job, which also touches it as
a sign of life), control (written by other servers), events.jsonl (written by the child: its process first, its exit
code last), log.txt (the child's output), measure (the measurements that sessions ordered to follow the job), pause (a
request to stop at the next point or step), and files that reserve space for the job's states. These last are removed
when the job ends, or when a server starts after the job's server has died.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from merging.base.files import atomic
from merging.base.files.disk import STORE_REMEDY, explain_os_errors, free_bytes
from merging.base.files.processes import NO_PROCESS, ProcessId, this_process
from merging.base.files.records import (
    encode_json,
    remove_reserve_files,
    write_json,
    write_reserve_files,
    write_reserved,
)
from merging.tasks.queue.child_process import Process, StartCommand, child_environment, start_command
from merging.tasks.queue.events import WORKER_KEY
from merging.tasks.queue.job_kinds import MERGE, find_job_kind

STATE_FILE, EVENTS_FILE, LOG_FILE = "state.json", "events.jsonl", "log.txt"
CHILD_NICENESS = 10
MIN_FREE_BYTES = 1 << 16  # below which a disk counts as full
EVENT_BYTES = 8192  # at the end of the file of events, in which the last event is searched
SILENT_SECONDS = 180.0  # without a write, after which a job of another computer counts as dead
MEASURE_FILE = "measure"  # {session: keys of the measurements that follow the job}; without the file none follow
PAUSE_FILE = "pause"  # its presence asks a sweep or a merge that learns to stop at the next point or step
CONTROL_FILE, CANCEL_TEXT = "control", "cancel"  # the file that other servers write to cancel the job, and its content
log = logging.getLogger(__name__)


class State(StrEnum):
    """The state of a job."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    PAUSED = "paused"


@dataclass(frozen=True, slots=True)
class Record:
    """The contents of state.json."""

    state: State
    title: str
    base: str  # the folder that relative paths in the recipe start from
    need_model: bool  # whether a run that is stored without its model is computed again
    submitted: float
    owner: ProcessId  # the server that has the job
    worker: ProcessId = NO_PROCESS
    started: float | None = None
    finished: float | None = None
    error: str = ""
    kind: str = MERGE  # a key of ``job_kinds.JOB_KINDS`` or of a measurement, or one word for a command
    subject: str = ""  # the id of the run or sweep, or the subject of a command; empty if a benchmark is measured
    words: tuple[str, ...] = ()  # the words of a command; empty for other kinds
    benchmark: str = ""  # the folder of the benchmark; empty for the server's


@dataclass(frozen=True, slots=True)
class Job:
    """A merge, a measurement, a sweep or another command that a user has requested.

    ``kind`` is "merge", "sweep", the key of a measurement, or one word for a command. ``subject`` is the id of the run
    that a job computes or measures, the id of a sweep, or the subject of a command; empty for a measurement of the
    benchmark. ``position`` is its position in the queue from 1, 0 if it does not wait. ``state`` is queued, running,
    done, failed, cancelled, paused or interrupted (its process ended without reporting, such as after a restart).
    ``error`` states why it failed or was interrupted. ``halted_pid`` is the number of its process if a signal has
    halted it, else 0. Times are seconds since the epoch; ``seconds_until_start`` is until a waiting job should begin,
    or None. ``benchmark`` is the folder of the benchmark, empty for the server's default. ``is_remote`` is whether
    another computer runs it, ``is_resumable`` whether it continues where it stopped if it is submitted again.
    ``followed_by`` is {session: keys of the measurements that are submitted for it when the job is done}.
    """

    id: str
    title: str
    state: str
    phase: str = ""
    detail: str = ""
    fraction: float = 0.0
    seconds_left: float | None = None
    position: int = 0
    error: str = ""
    submitted: float = 0.0
    started: float | None = None
    finished: float | None = None
    recipe_yaml: str = ""
    kind: str = MERGE
    subject: str = ""
    words: tuple[str, ...] = ()
    benchmark: str = ""
    halted_pid: int = 0
    seconds_until_start: float | None = None
    is_remote: bool = False
    is_resumable: bool = False
    followed_by: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def is_live(self) -> bool:
        """Whether the job is queued or running."""
        return self.state in {State.QUEUED, State.RUNNING}

    @property
    def can_pause(self) -> bool:
        """Whether it can stop half-way and continue later: a sweep, a published experiment, or a merge that learns."""
        return find_job_kind(self.kind).is_pausable(self.recipe_yaml)


_unwritten: dict[Path, Record] = {}  # by the job's folder: records that a full disk could not store


@dataclass(frozen=True, slots=True)
class JobFiles:
    """The folder of one job."""

    root: Path
    job_id: str

    @property
    def folder(self) -> Path:
        """The folder with the job's files."""
        return self.root / self.job_id

    def create(
        self,
        recipe_yaml: str,
        *,
        title: str,
        base: Path,
        need_model: bool = False,
        earlier: Record | None = None,
        **about: Any,
    ) -> bool:
        """Write a new queued job, replacing the ``earlier`` one with this id; False if another server was first.

        ``about`` are further fields of its record.

        Raises:
            StoreError: the store cannot be written to; the job does not exist then.
        """
        record = Record(State.QUEUED, title, str(base), need_model, time.time(), this_process(), **about)
        return self._publish(recipe_yaml, record, earlier)

    def create_again(self, earlier: Record) -> bool:
        """Write an earlier job as a new queued one; False if another server was first."""
        record = replace(
            earlier, state=State.QUEUED, submitted=time.time(), owner=this_process(), worker=NO_PROCESS, started=None,
            finished=None, error="",
        )  # fmt: skip
        return self._publish(self.recipe_yaml(), record, earlier, self.list_ordered())

    def _publish(
        self,
        recipe_yaml: str,
        record: Record,
        earlier: Record | None,
        ordered: Mapping[str, Sequence[str]] | None = None,
    ) -> bool:
        """Publish a job's complete folder, unless another job than ``earlier`` is there; return whether it did that."""
        with explain_os_errors("The job", STORE_REMEDY):
            folder = atomic.make_temporary(self.root)
            try:
                (folder / "recipe.yaml").write_text(recipe_yaml, "utf-8")
                if ordered:
                    write_json(folder / MEASURE_FILE, ordered)
                (folder / CONTROL_FILE).touch()
                write_json(folder / STATE_FILE, asdict(record))
                write_reserve_files(folder)  # for two more states: "running" and the final one
                exists, present = self.folder.exists(), self.read()  # this order: a folder created in between is whole
                if present is not None and present != earlier:
                    return False
                if exists:
                    self.remove()
                return atomic.publish(folder, self.folder)
            finally:
                atomic.remove_temporary(folder)

    def remove(self) -> None:
        """Delete the job's files. Raises StoreError if they cannot be deleted."""
        _unwritten.pop(self.folder, None)
        atomic.remove_entry(self.folder, "The record of the job")

    def read(self) -> Record | None:
        """The job's record: the one that could not be written, else state.json; None if that is missing or damaged."""
        if (unwritten := _unwritten.get(self.folder)) is not None and self.folder.is_dir():
            return unwritten
        try:
            data = json.loads((self.folder / STATE_FILE).read_bytes())
            owner, worker = ProcessId(**data.pop("owner")), ProcessId(**data.pop("worker"))
            data |= {"state": State(data["state"]), "words": tuple(data["words"])}
            return Record(**data, owner=owner, worker=worker)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def update(self, **changes: Any) -> None:
        """Change some fields of state.json; does nothing if the job is gone.

        On a full disk the record is written into reserved space. If that fails, too, only this process knows the new
        record; other processes see a job whose process is gone.
        """
        if (record := self.read()) is None:
            return
        changed = replace(record, **changes)
        try:
            self._write(changed)
            if changed.state not in {State.QUEUED, State.RUNNING}:
                remove_reserve_files(self.folder)
            _unwritten.pop(self.folder, None)
        except OSError as error:
            log.warning("The state of job %s cannot be written: %s", self.job_id, error.strerror)
            _unwritten[self.folder] = changed

    def _write(self, record: Record) -> None:
        write_reserved(self.folder / STATE_FILE, encode_json(asdict(record)))

    def recipe_yaml(self) -> str:
        """The recipe as submitted."""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            return (self.folder / "recipe.yaml").read_text("utf-8")
        return ""

    def read_events(self, size: int = EVENT_BYTES) -> Iterator[dict[str, Any]]:
        """The events within the last ``size`` bytes of the child's file, newest first."""
        lines: list[bytes] = []
        with contextlib.suppress(OSError), (self.folder / EVENTS_FILE).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - size))
            lines = file.read().split(b"\n")[:-1]
        for line in reversed(lines):
            with contextlib.suppress(ValueError):  # the line is cut off at its start
                if isinstance(event := json.loads(line), dict):
                    yield event

    def read_last_event(self) -> dict[str, Any]:
        """The last event that the child wrote; empty before the first."""
        return next(self.read_events(), {})

    def was_started(self) -> bool:
        """Whether its child was started, or was about to be: its log exists."""
        return (self.folder / LOG_FILE).exists()

    def is_disk_full(self) -> bool:
        """Whether the disk has too little free space for even an error message."""
        return free_bytes(self.folder) < MIN_FREE_BYTES

    def find_worker(self, record: Record) -> ProcessId:
        """The process that works on the job: as the record states, else as the child's first event does."""
        if record.worker.pid:
            return record.worker
        try:
            with (self.folder / EVENTS_FILE).open("rb") as file:
                return ProcessId(**json.loads(file.readline(EVENT_BYTES))[WORKER_KEY])
        except (OSError, ValueError, KeyError, TypeError):
            return NO_PROCESS

    def ask_to_pause(self) -> None:
        """Ask the job to stop at the next point or step. Raises StoreError if the store cannot be written to."""
        with explain_os_errors("The request to pause", STORE_REMEDY):
            (self.folder / PAUSE_FILE).touch()

    def order_measurements(self, keys: Sequence[str], session: str) -> None:
        """Let these measurements follow the job for a session; none of its own, without ``keys``.

        The caller lets one thread and process order at a time. Raises StoreError if the order cannot be written.
        """
        ordered = self.list_ordered()
        others = {name: theirs for name, theirs in ordered.items() if name != session}
        with explain_os_errors("The order to measure", STORE_REMEDY):
            if keys or others:
                write_json(self.folder / MEASURE_FILE, others | ({session: list(keys)} if keys else {}))
            elif ordered:
                (self.folder / MEASURE_FILE).unlink(missing_ok=True)

    def list_ordered(self) -> dict[str, list[str]]:
        """{session: keys of the measurements that follow the job for it}."""
        with contextlib.suppress(OSError, ValueError, AttributeError, TypeError):
            ordered = json.loads((self.folder / MEASURE_FILE).read_bytes())
            return {session: [str(key) for key in keys] for session, keys in ordered.items()}
        return {}

    def take_ordered(self) -> dict[str, list[str]]:
        """The same keys, for the one caller that submits the measurements."""
        ordered = self.list_ordered()
        with contextlib.suppress(OSError):
            (self.folder / MEASURE_FILE).unlink()
            return ordered
        return {}

    def mark_cancelled(self) -> None:
        """Inform the server that owns the job that the job is cancelled."""
        with contextlib.suppress(OSError):
            (self.folder / CONTROL_FILE).write_text(CANCEL_TEXT, "ascii")

    def is_cancelled(self) -> bool:
        """Whether another server has cancelled the job."""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            return (self.folder / CONTROL_FILE).read_text("ascii") == CANCEL_TEXT
        return False

    def signal_alive(self) -> None:
        """Show other computers that this server still has the job."""
        with contextlib.suppress(OSError):
            os.utime(self.folder / STATE_FILE)

    def is_silent(self) -> bool:
        """Whether neither the job's server nor its child has written for ``SILENT_SECONDS`` seconds."""
        times = [0.0]
        for name in (STATE_FILE, EVENTS_FILE):
            with contextlib.suppress(OSError):
                times.append((self.folder / name).stat().st_mtime)
        return time.time() - max(times) > SILENT_SECONDS

    def start(
        self, store_root: Path, device: str, start_process: StartCommand = start_command, job_count: int = 1
    ) -> Process:
        """Start the child process that does the job, in a process group of its own, while ``job_count`` jobs run.

        Raises:
            StoreError: the job's log cannot be written.
        """
        record = self.read()
        assert record is not None
        words = [*self._build_command(record, device), "--events", str(self.folder / EVENTS_FILE)]
        words += ["--store", str(store_root.absolute()), "--nice", str(CHILD_NICENESS)]
        with explain_os_errors("The log of the job", STORE_REMEDY):
            output = (self.folder / LOG_FILE).open("wb")
        with output:
            return start_process(["merging", *words], child_environment(record.benchmark, job_count), output)

    def _build_command(self, record: Record, device: str) -> list[str]:
        """The words of the command that does the job."""
        kind, recipe = find_job_kind(record.kind), str(self.folder / "recipe.yaml")
        fields = asdict(record) | {"recipe": recipe, "need_model": "--need-model" if record.need_model else ""}
        words = list(record.words) or [word for template in kind.command if (word := template.format(**fields))]
        words += ["--pause-file", str(self.folder / PAUSE_FILE)] if kind.is_pausable(self.recipe_yaml()) else []
        return words if record.words else [*words, "--device", device]


def name_job(kind: str, subject: str = "") -> str:
    """The id of the job of a kind on a subject; a merge has the id of its run."""
    return subject if find_job_kind(kind).in_store else f"{kind}-{subject}"
