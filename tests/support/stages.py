"""Stages of a process: what it is about to change on the disk, and its reports of progress; it can be killed at one.

Changes are seen by an audit hook and by wrappers around the calls that Python does not audit, so the program under test
knows nothing of it. A stage is reached before the change is made.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
PUBLISHING = "rename"  # puts something where pages and commands see it, or takes it away
CHANGES = {"os.rename": PUBLISHING, "os.mkdir": "mkdir", "os.remove": "remove", "os.rmdir": "rmdir", "os.link": "link"}
VARYING = re.compile(r"[0-9a-f]{32}-\d+-\d+-[0-9a-f]{8}")
HIDDEN = re.compile(r"/(?:tmp|old)-[0-9a-f]{32}-[^/]*/.*")  # within a temporary folder


class ProcessStages:
    """Counts the stages of this process below a folder; at ``kill_at`` it and the processes ``also`` are killed."""

    def __init__(self, root: str, kill_at: int = 0, also: Sequence[int] = (), log: str = "") -> None:
        self.root, self.kill_at, self.also, self.log = root, kill_at, also, log
        self.names: list[str] = []
        self.pid = 0

    def begin(self) -> None:
        """Watch this process from now on, but not those that it forks; nothing takes the hook away again."""
        from merging.base.progress import Meter
        from merging.cli import output

        output.EVENT_SECONDS = float("inf")  # on a busy machine more would be written: stages must not depend on time
        self.pid = os.getpid()
        sys.addaudithook(self._audited)
        self._wrap(os, "fsync", "sync")
        self._wrap(os, "pwrite", "write")
        self._wrap(Meter, "report_part", "progress")

    def end(self) -> None:
        """Write the names of the stages to the log."""
        if self.log:
            names, self.root = list(self.names), "/nowhere"
            Path(self.log).write_text("\n".join(names))

    def reach(self, name: str) -> None:
        """One more stage."""
        if os.getpid() != self.pid:
            return
        self.names.append(name)
        if len(self.names) == self.kill_at:
            for pid in (*self.also, os.getpid()):
                os.kill(pid, signal.SIGKILL)
            time.sleep(60)

    def _wrap(self, owner: Any, name: str, kind: str) -> None:
        original = getattr(owner, name)

        def wrapped(*args: Any, **options: Any) -> Any:
            self.reach(kind)
            return original(*args, **options)

        setattr(owner, name, wrapped)

    def _audited(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = args
            writing = bool(flags & WRITING) or (isinstance(mode, str) and bool(set(mode) & set("wax+")))
            if writing and isinstance(path, str | os.PathLike) and self._below(path):
                self.reach(f"open {_plain(path)}")
        elif event in CHANGES:
            path = args[1] if event in {"os.rename", "os.link"} else args[0]
            relative = isinstance(args[-1], int) and args[-1] != -1  # to an open folder, as shutil.rmtree does
            if relative or self._below(path):
                hidden = event == "os.rename" and all(HIDDEN.search(os.fspath(part)) for part in args[:2])
                self.reach(f"{'move' if hidden else CHANGES[event]} {_plain(path)}")

    def _below(self, path: Any) -> bool:
        return os.path.abspath(os.fspath(path)).startswith(self.root)  # noqa: PTH100 - makes no Path of each


def _plain(path: Any) -> str:
    return VARYING.sub("*", Path(os.fspath(path)).name)


def choose_stages(names: Sequence[str], most: int) -> list[int]:
    """Numbers of stages: the first, the last, those around every visible rename, and others evenly up to ``most``.

    Of stages of one name in a row only the first counts.
    """
    distinct = [number for number, name in enumerate(names, 1) if number == 1 or name != names[number - 2]]
    numbers = {1, len(names)}
    for number, name in enumerate(names, 1):
        if name.startswith(PUBLISHING):
            numbers |= {number, min(number + 1, len(names))}
    others = [number for number in distinct if number not in numbers]
    spare = max(0, most - len(numbers))
    numbers |= {others[len(others) * step // spare] for step in range(spare)} if others else set()
    return sorted(numbers)
