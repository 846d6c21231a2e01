"""A spare process: it loads the modules of jobs and previews in advance, and becomes the next job or preview process.

Every job has a process of its own: the spare process does one job and ends. If there is none, a new process is started.
A spare process that was handed out is replaced: after a job by the queue, which calls ``renew``, and after an order to
answer requests by the thread that watches the memory.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from typing import IO

from merging.base.free_memory import free_memory
from merging.tasks.kinds import Plain
from merging.tasks.queue.child_process import (
    Environment,
    Process,
    WorkerProcess,
    child_environment,
    start_answering,
    start_command,
    stop_process,
)

START_FREE_BYTES = 1.5 * 2**30  # of memory, above which a spare process is started
END_FREE_BYTES = 0.75 * 2**30  # of memory, below which the spare process is ended
WATCH_SECONDS = 5.0  # between two checks of the memory
PRELOADED_MODULES = (
    "torch", "pandas", "merging.cli.main", "merging.cli.commands.run", "merging.cli.commands.measure",
    "merging.cli.run_and_export", "merging.study.runs.execute", "merging.engine.evaluation.evaluate",
    "merging.methods.registry",
    "merging.study.previews.previewer", "PIL.Image",
)  # fmt: skip
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")  # variables that torch reads only when it is loaded


class SpareProcess:
    """At most one process that waits for an order. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted, self._closed = threading.Event(), threading.Event()
        self._process: WorkerProcess | None = None
        self._thread_counts: list[str] = []  # the values of ``THREAD_VARIABLES`` that the process was started with
        self._must_replace = False  # whether a process was handed out to answer requests and is not replaced yet

    @property
    def pid(self) -> int:
        """The number of the waiting process; 0 if there is none. A process that has died is forgotten."""
        with self._lock:
            if self._process is not None and not self._process.pid:
                self._process.close_pipes()
                self._process = None
            return self._process.pid if self._process is not None else 0

    def keep_ready(self) -> None:
        """Have a process ready from now on, as long as there is memory for it."""
        if not self._wanted.is_set():
            self._wanted.set()
            threading.Thread(target=self._watch, name="spare process", daemon=True).start()
        self.renew()

    def renew(self) -> None:
        """Start a process if one is wanted and none waits, unless memory is short or the system refuses."""
        if not self._wanted.is_set() or self.pid or free_memory() < START_FREE_BYTES:
            return
        environment = child_environment()
        with self._lock, contextlib.suppress(OSError):
            if self._process is None and not self._closed.is_set():
                self._process = WorkerProcess(PRELOADED_MODULES, environment)
                self._thread_counts = _read_threads(environment)

    def start_command(self, words: Sequence[str], environment: Environment, output: IO[bytes]) -> Process:
        """A process that runs a module as ``python -m`` does: the waiting one, or a new one. Raises OSError."""
        process = self._hand_out({"command": list(words), "environment": dict(environment), "output": output.name})
        if process is None:
            return start_command(words, environment, output)
        process.close_pipes()
        return process.process

    def start_answering(self, order: Plain) -> WorkerProcess:
        """A process that has the order to answer requests: the waiting one, or a new one. Raises OSError."""
        process = self._hand_out({**order, "environment": child_environment()})
        self._must_replace = True
        return process or start_answering(order)

    def _hand_out(self, order: Plain) -> WorkerProcess | None:
        """The waiting process after it has read an order; None if there is none or it cannot follow the order."""
        process = self._detach()
        if process is None:
            return None
        if self._thread_counts == _read_threads(order["environment"]) and process.deliver(order):
            return process
        _end_process(process)
        return None

    def _detach(self) -> WorkerProcess | None:
        """The waiting process, which no longer belongs to this object; None if there is none."""
        with self._lock:
            process, self._process = self._process, None
        return process

    def close(self) -> None:
        """End the process and start no more, for tests and for shutting down."""
        self._closed.set()
        _end_process(self._detach())

    def _watch(self) -> None:
        """Replace a process that was taken to answer requests, and end the waiting one when memory is short."""
        while not self._closed.wait(WATCH_SECONDS):
            if self._must_replace:
                self._must_replace = False
                self.renew()
            if self.pid and free_memory() < END_FREE_BYTES:
                _end_process(self._detach())


def _end_process(process: WorkerProcess | None) -> None:
    """End a process that is not needed."""
    if process is not None:
        stop_process(process.process)
        process.close_pipes()


def _read_threads(environment: Environment) -> list[str]:
    return [environment.get(name, "") for name in THREAD_VARIABLES]
