"""Processes identified by number, start time and computer, so that a reused number is not mistaken for the same one."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self

import psutil

START_TIME_TOLERANCE = 2.0  # seconds by which two readings of a start time may differ, as clocks count whole seconds
PROCESS_PATTERN = r"(\d+)-(\d+)-([0-9a-f]{8})"  # the pattern of ``ProcessId.text``: number, start time, computer
DEAD_STATUSES = {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
HALTED_STATUSES = {psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP}


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process; ``pid`` 0 stands for no process.

    ``born`` is its start time in seconds, on Linux since the boot, so that setting the clock does not change it.
    ``host`` identifies the computer, its boot and its namespace of process numbers.
    """

    pid: int = 0
    born: float = 0.0
    host: str = ""

    @classmethod
    def from_pid(cls, pid: int) -> Self:
        """The process that has this number now; ``NO_PROCESS`` if it has ended."""
        try:
            return cls(pid, _start_time(psutil.Process(pid)), this_host())
        except psutil.Error:
            return cls()

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The process that a text, made by the property ``text``, describes; None for any other text."""
        match = re.fullmatch(PROCESS_PATTERN, text)
        return cls(int(match[1]), float(match[2]), match[3]) if match else None

    @property
    def text(self) -> str:
        """The process as text that can be part of a file's name."""
        return f"{self.pid}-{round(self.born)}-{self.host}"

    @property
    def is_local(self) -> bool:
        """Whether it belongs to this computer since its last boot, so that ``is_alive`` can tell."""
        return self.host == this_host()

    @property
    def is_remote(self) -> bool:
        """Whether it belongs to another computer, or to this one before its last boot; its status is then unknown."""
        return bool(self.pid) and not self.is_local

    def status(self) -> str:
        """The status that psutil reports; empty if the process has ended or is remote."""
        if not self.pid or self.is_remote:
            return ""
        try:
            process = psutil.Process(self.pid)
            born, status = _start_time(process), process.status()
        except psutil.Error:
            return ""
        return "" if abs(born - self.born) >= START_TIME_TOLERANCE or status in DEAD_STATUSES else str(status)

    def is_alive(self) -> bool:
        """Whether the process runs or is halted."""
        return bool(self.status())

    def is_halted(self) -> bool:
        """Whether a signal has stopped it, so that it waits for a signal to continue."""
        return self.status() in HALTED_STATUSES

    def is_working(self) -> bool:
        """Whether the process runs and is not halted."""
        return self.status() not in {"", *HALTED_STATUSES}

    def works_in_another_process(self) -> bool:
        """Whether it works and is not this process."""
        return self.pid != os.getpid() and self.is_working()


NO_PROCESS = ProcessId()


def this_process() -> ProcessId:
    """This process."""
    return _find_process(os.getpid())


@cache
def _find_process(pid: int) -> ProcessId:
    return ProcessId.from_pid(pid)


def _start_time(process: psutil.Process) -> float:
    """The start time in seconds; on Linux without the boot time, which psutil adds and which changes with the clock."""
    return process.create_time() - (psutil.boot_time() if psutil.LINUX else 0.0)


@cache
def this_host() -> str:
    """Eight hexadecimal digits that identify this computer, its boot, and its namespace of process numbers."""
    facts = [platform.node()]
    with contextlib.suppress(OSError):  # these files exist only on Linux
        facts.append(Path("/proc/sys/kernel/random/boot_id").read_text("ascii"))
        facts.append(str(Path("/proc/self/ns/pid").readlink()))
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:8]
