"""How much memory this process can still take: what the machine has free, within the limits of its control groups."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

OF_PROCESS, GROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")  # only Linux has them
PAGES = ("active_file", "inactive_file")  # pages of files, which the system drops where memory is needed


class GroupFiles(NamedTuple):
    """The files of a control group that say how much memory it may take, and how much it takes."""

    limit: str
    used: str
    prefix: str  # of the entries of memory.stat that count the groups inside, too


VERSION_1 = GroupFiles("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
VERSION_2 = GroupFiles("memory.max", "memory.current", "")


def free_memory() -> int:
    """Bytes of memory that this process can still take; a container or a service may have less than its machine."""
    return max(0, min([int(psutil.virtual_memory().available), *_left_in_groups()]))


def _left_in_groups() -> Iterator[int]:
    """What is left in each control group with a limit that the process is in: its own, and those around it."""
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
                with contextlib.suppress(OSError, ValueError):  # no such group here, or "max": it has no limit
                    yield _left(folder, files)


def _left(folder: Path, files: GroupFiles) -> int:
    """A group's limit without what it takes. Raises OSError or ValueError if it has no limit."""
    limit, used = (int((folder / name).read_text("ascii")) for name in (files.limit, files.used))
    pages = 0
    for entry in (folder / "memory.stat").read_text("ascii").splitlines():
        name, _, size = entry.partition(" ")
        pages += int(size) if name.removeprefix(files.prefix) in PAGES and name.startswith(files.prefix) else 0
    return limit - used + pages
