"""How much memory this process can still take, within the limits of its control groups, and whether it has run out."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

OF_PROCESS, GROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")  # only Linux has them
OF_MACHINE, KILLS = Path("/proc/vmstat"), "oom_kill"  # where the system counts the processes that it killed for memory
LOW = 1 << 28  # bytes of free memory below which a process that is killed was likely killed for it
PAGES = ("active_file", "inactive_file")  # pages of files, which the system drops where memory is needed


class GroupFiles(NamedTuple):
    """The files of a control group that say how much memory it may take and takes, and how many were killed for it."""

    limit: str
    used: str
    prefix: str  # of the entries of memory.stat that count the groups inside, too
    kills: str


VERSION_1 = GroupFiles("memory.limit_in_bytes", "memory.usage_in_bytes", "total_", "memory.oom_control")
VERSION_2 = GroupFiles("memory.max", "memory.current", "", "memory.events")


def free_memory() -> int:
    """Bytes of memory that this process can still take; a container or a service may have less than its machine."""
    return max(0, min([int(psutil.virtual_memory().available), *_free_in_groups()]))


class MemorySample(NamedTuple):
    """What a look at the memory found: whether hardly any was free, and how many processes were killed for it."""

    low: bool
    kills: int


class MemoryWatch:
    """Whether memory ran out around the last looks: a process that was killed then was likely killed for it.

    Two ``looks`` count where one may come after the process was killed; one where looks are far apart.
    """

    def __init__(self, looks: int = 2) -> None:
        self._looks = deque([MemorySample(False, _count_kills())], maxlen=looks)

    def sample(self) -> None:
        """Note how much memory is free now, and how many processes were killed for it, while the process runs."""
        self._looks.append(MemorySample(free_memory() < LOW, _count_kills()))

    def ran_out(self) -> bool:
        """Whether hardly any memory was free at the last looks, or the system has killed a process for it since."""
        return any(look.low for look in self._looks) or _count_kills() > self._looks[0].kills


def _count_kills() -> int:
    """How many processes were killed for memory, as the machine and the control groups count them; 0 if none counts."""
    counted = 0
    for path in (OF_MACHINE, *(folder / files.kills for folder, files in _find_groups())):
        with contextlib.suppress(OSError, ValueError):
            entries = (line.split() for line in path.read_text("ascii").splitlines())
            counted += sum(int(entry[1]) for entry in entries if entry[:1] == [KILLS])
    return counted


def _free_in_groups() -> Iterator[int]:
    """What is left in each control group with a limit that the process is in."""
    for folder, files in _find_groups():
        with contextlib.suppress(OSError, ValueError):  # no such group here, or "max": it has no limit
            yield _free_in_group(folder, files)


def _find_groups() -> Iterator[tuple[Path, GroupFiles]]:
    """The folders of the control groups that the process is in: its own, and those around it."""
    lines = ""
    with contextlib.suppress(OSError):
        lines = OF_PROCESS.read_text("utf-8", "replace")
    for line in lines.splitlines():
        controllers, path = line.split(":", 2)[1:]
        if controllers and "memory" not in controllers.split(","):
            continue
        root, files = (GROUPS / "memory", VERSION_1) if controllers else (GROUPS, VERSION_2)
        own = root / path.lstrip("/")
        for folder in (own, *own.parents):
            if folder.is_relative_to(root):
                yield folder, files


def _free_in_group(folder: Path, files: GroupFiles) -> int:
    """A group's limit without what it takes. Raises OSError or ValueError if it has no limit."""
    limit, used = (int((folder / name).read_text("ascii")) for name in (files.limit, files.used))
    pages = 0
    for entry in (folder / "memory.stat").read_text("ascii").splitlines():
        name, _, size = entry.partition(" ")
        pages += int(size) if name.removeprefix(files.prefix) in PAGES and name.startswith(files.prefix) else 0
    return limit - used + pages
