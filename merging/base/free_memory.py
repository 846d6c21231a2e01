"""How much memory this process can still allocate within the limits of its control groups, and whether it ran out."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

PROCESS_GROUPS_FILE, GROUPS_ROOT = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")  # only on Linux
# The file and the entry that count processes killed for memory.
MACHINE_COUNTERS_FILE, KILL_COUNTER = Path("/proc/vmstat"), "oom_kill"
LOW_MEMORY_BYTES = 1 << 28  # bytes of free memory; below, lack of memory is the likely cause of a kill
CACHE_PAGES = ("active_file", "inactive_file")  # cached file pages, which the system drops when memory is needed


class GroupFiles(NamedTuple):
    """Names of a control group's files with its memory limit, its memory in use, and its count of killed processes."""

    limit: str
    used: str
    prefix: str  # of the entries in memory.stat that include nested groups
    kills: str


VERSION_1 = GroupFiles("memory.limit_in_bytes", "memory.usage_in_bytes", "total_", "memory.oom_control")
VERSION_2 = GroupFiles("memory.max", "memory.current", "", "memory.events")


def free_memory() -> int:
    """Bytes of memory that this process can still allocate; a container or a service may have less than its machine."""
    return max(0, min([int(psutil.virtual_memory().available), *_list_free_in_groups()]))


class MemorySample(NamedTuple):
    """The state of the memory at one time: whether hardly any was free, and how many processes were killed for it."""

    low: bool
    kills: int


class MemoryWatch:
    """Detects that memory ran out around the last samples, which is then the likely reason why a process was killed.

    ``sample_count`` is how many samples count: two if the last one may be taken after the kill, one if samples are far
    apart.
    """

    def __init__(self, sample_count: int = 2) -> None:
        self._samples = deque([MemorySample(False, _count_kills())], maxlen=sample_count)

    def sample(self) -> None:
        """Record how much memory is free now, and how many processes were killed for memory so far."""
        self._samples.append(MemorySample(free_memory() < LOW_MEMORY_BYTES, _count_kills()))

    def ran_out(self) -> bool:
        """Whether hardly any memory was free at the last samples, or the system has killed a process for it since."""
        return any(sample.low for sample in self._samples) or _count_kills() > self._samples[0].kills


def _count_kills() -> int:
    """How many processes were killed for memory, counted by the machine and the control groups; else 0."""
    total = 0
    for path in (MACHINE_COUNTERS_FILE, *(folder / files.kills for folder, files in _find_groups())):
        with contextlib.suppress(OSError, ValueError):
            entries = (line.split() for line in path.read_text("ascii").splitlines())
            total += sum(int(entry[1]) for entry in entries if entry[:1] == [KILL_COUNTER])
    return total


def _list_free_in_groups() -> Iterator[int]:
    """Bytes of memory left in each control group of the process that has a limit."""
    for folder, files in _find_groups():
        with contextlib.suppress(OSError, ValueError):  # there is no such group, or "max": it has no limit
            yield _free_in_group(folder, files)


def _find_groups() -> Iterator[tuple[Path, GroupFiles]]:
    """The folders of the control groups that the process is in: its own and all enclosing ones."""
    lines = ""
    with contextlib.suppress(OSError):
        lines = PROCESS_GROUPS_FILE.read_text("utf-8", "replace")
    for line in lines.splitlines():
        controllers, path = line.split(":", 2)[1:]
        if controllers and "memory" not in controllers.split(","):
            continue
        root, files = (GROUPS_ROOT / "memory", VERSION_1) if controllers else (GROUPS_ROOT, VERSION_2)
        group_folder = root / path.lstrip("/")
        for folder in (group_folder, *group_folder.parents):
            if folder.is_relative_to(root):
                yield folder, files


def _free_in_group(folder: Path, files: GroupFiles) -> int:
    """A group's limit minus its memory in use. Raises OSError or ValueError if it has no limit."""
    limit, used = (int((folder / name).read_text("ascii")) for name in (files.limit, files.used))
    pages = 0
    for entry in (folder / "memory.stat").read_text("ascii").splitlines():
        name, _, size = entry.partition(" ")
        pages += int(size) if name.removeprefix(files.prefix) in CACHE_PAGES and name.startswith(files.prefix) else 0
    return limit - used + pages
