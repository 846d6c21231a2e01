"""A spare process: it loads what jobs and previews need before one is asked for, and becomes the next of them.

Every job has a process of its own: the spare one does one job and ends. Where there is none, a new process is started.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import IO

from merging.free_memory import free_memory
from merging.jobs.child_process import child_environment, start_process, stop_process
from merging.jobs.spare_process import ANSWER

ROOM = 1.5 * 2**30  # free bytes of memory for a spare process to be started
LEAST = 0.75 * 2**30  # below which it is dropped
WATCH = 5.0  # seconds between two looks at the memory
PATIENCE = 10.0  # seconds that it has to answer an order, on a busy machine
PROCESS = "merging.jobs.spare_process"
LOADED = (
    "torch", "pandas", "merging.cli.main", "merging.cli.commands.run", "merging.cli.commands.measure",
    "merging.cli.exporting", "merging.runs.execute", "merging.benchmarks.evaluate", "merging.methods.registry",
    "merging.previews.work", "PIL.Image",
)  # fmt: skip
READ_ONCE = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")  # variables that count when torch is loaded


class Spare:
    """At most one process that waits for what it is to become. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept, self._closed = threading.Event(), threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._threads: list[str] = []
        self._lent = False  # to what goes on, so that no end of a job brings the next one

    @property
    def pid(self) -> int:
        """The number of the process; 0 if there is none now."""
        with self._lock:
            if self._process is not None and self._process.poll() is not None:
                _close(self._process)
                self._process = None
            return self._process.pid if self._process is not None else 0

    def keep_one(self) -> None:
        """Have a process ready from now on, and watch that there is memory for it."""
        if not self._kept.is_set():
            self._kept.set()
            threading.Thread(target=self._watch, name="spare process", daemon=True).start()
        self.renew()

    def renew(self) -> None:
        """Start a process if one is to be kept and there is none; not if memory is short, or the system refuses."""
        if not self._kept.is_set() or self.pid or free_memory() < ROOM:
            return
        environment = child_environment()
        with self._lock, contextlib.suppress(OSError):
            if self._process is None and not self._closed.is_set():
                self._process = start_process(PROCESS, LOADED, environment)
                self._threads = _threads(environment)

    def launch(
        self, module: str, words: Sequence[str], environment: Mapping[str, str], output: IO[bytes] | None = None
    ) -> subprocess.Popen[bytes]:
        """A process that runs a module as ``python -m`` would: the spare one, or a new one. See ``start_process``.

        Raises:
            OSError: none can be started.
        """
        with self._lock:
            process, self._process = self._process, None
            self._lent |= output is None
        order = {"module": module, "words": list(words), "environment": dict(environment)}
        line = json.dumps({**order, "output": output.name if output else ""}).encode() + b"\n"
        if process is not None:
            if self._threads == _threads(environment) and _sent(process, line):
                if output is not None:
                    _close(process)
                return process
            _drop(process)
        return start_process(module, words, environment, output)

    def close(self) -> None:
        """End the process and start no more, for tests and for shutting down."""
        self._closed.set()
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            _drop(process)

    def _watch(self) -> None:
        """Replace a process that was lent, and drop one when memory is short."""
        while not self._closed.wait(WATCH):
            if self._lent:
                self._lent = False
                self.renew()
            if self.pid and free_memory() < LEAST:
                with self._lock:
                    process, self._process = self._process, None
                if process is not None:
                    _drop(process)


def _threads(environment: Mapping[str, str]) -> list[str]:
    return [environment.get(name, "") for name in READ_ONCE]


def _sent(process: subprocess.Popen[bytes], line: bytes) -> bool:
    """Tell a process what to become; False if it ends, or is stopped, before it has read that."""
    assert process.stdin is not None and process.stdout is not None
    with contextlib.suppress(OSError):
        if not _written(process.stdin.fileno(), line):
            return False
        answers, _, _ = select.select([process.stdout], [], [], PATIENCE)
        return bool(answers) and process.stdout.read(1) == ANSWER
    return False


def _written(pipe: int, line: bytes) -> bool:
    """Write a line that may be longer than what a pipe holds; False if it is not read for too long."""
    os.set_blocking(pipe, False)
    left = memoryview(line)
    while left:
        _, ready, _ = select.select([], [pipe], [], PATIENCE)
        if not ready:
            return False
        left = left[os.write(pipe, left) :]
    os.set_blocking(pipe, True)  # as whoever goes on to use it expects
    return True


def _close(process: subprocess.Popen[bytes]) -> None:
    """Close this side of a process's input and output."""
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()


def _drop(process: subprocess.Popen[bytes]) -> None:
    """End a process that is not needed."""
    stop_process(process)
    _close(process)
