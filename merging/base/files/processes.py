"""Processes by number, time of birth and computer, so that a later one with the same number is not taken for them."""

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

SAME = 2.0  # seconds between two statements of one birth: the clocks that it is computed from have whole seconds
TEXT = r"(\d+)-(\d+)-([0-9a-f]{8})"  # a pattern of what ``text`` gives: number, birth, computer
DEAD = {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
HALTED = {psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP}


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process; number 0 is none.

    ``born`` is its time of birth in seconds, on Linux since the computer was started, so that setting the clock does
    not change it. ``host`` names the computer, its start and its space of process numbers.
    """

    pid: int = 0
    born: float = 0.0
    host: str = ""

    @classmethod
    def from_pid(cls, pid: int) -> Self:
        """The process that has this number now; number 0 if it is gone."""
        try:
            return cls(pid, _start_time(psutil.Process(pid)), this_host())
        except psutil.Error:
            return cls()

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The process that ``text`` gave; None if it is none."""
        match = re.fullmatch(TEXT, text)
        return cls(int(match[1]), float(match[2]), match[3]) if match else None

    @property
    def text(self) -> str:
        """The process as a part of a file's name."""
        return f"{self.pid}-{round(self.born)}-{self.host}"

    @property
    def is_local(self) -> bool:
        """Whether it belongs to this computer since its last start, so that ``alive`` can know."""
        return self.host == this_host()

    @property
    def is_remote(self) -> bool:
        """Whether it belongs to another computer, or to this one before its last start, so that it cannot be asked."""
        return bool(self.pid) and not self.is_local

    def status(self) -> str:
        """What psutil says of it; empty if it has ended, or belongs elsewhere."""
        if not self.pid or self.is_remote:
            return ""
        try:
            process = psutil.Process(self.pid)
            born, status = _start_time(process), process.status()
        except psutil.Error:
            return ""
        return "" if abs(born - self.born) >= SAME or status in DEAD else str(status)

    def is_alive(self) -> bool:
        """Whether it still runs or is halted."""
        return bool(self.status())

    def is_halted(self) -> bool:
        """Whether a signal stopped it, so that it waits for another one."""
        return self.status() in HALTED

    def is_working(self) -> bool:
        """Whether it still runs and is not halted."""
        return self.status() not in {"", *HALTED}

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
    """Seconds; psutil adds the computer's start on Linux, which changes when the clock is set."""
    return process.create_time() - (psutil.boot_time() if psutil.LINUX else 0.0)


@cache
def this_host() -> str:
    """Eight digits for this computer since its last start, and for the space of process numbers on it."""
    facts = [platform.node()]
    with contextlib.suppress(OSError):  # only Linux has these
        facts.append(Path("/proc/sys/kernel/random/boot_id").read_text("ascii"))
        facts.append(str(Path("/proc/self/ns/pid").readlink()))
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:8]
