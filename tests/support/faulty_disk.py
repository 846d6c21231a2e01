"""A disk that refuses: every call that writes below a folder is counted, and fails from a given one on, or kills.

Only the calls of this process are seen, and of those the ones that go through Python.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import io
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

FULL, READ_ONLY = errno.ENOSPC, errno.EROFS
KILLED = -1  # no error: the process is killed there
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
GROWS = ("mkdir", "rename", "replace", "link")  # what a full disk may refuse
CHANGES = (*GROWS, "unlink", "remove", "rmdir", "chmod", "utime", "truncate")  # what a read-only disk refuses


class FaultyDisk:
    """The folder ``root``, on which the calls from number ``first`` to ``last`` fail; ``calls`` lists them all.

    With ``in_place`` what needs no room on a full disk is done: writing over what a file holds, and putting one file in
    the place of another.
    """

    def __init__(self, root: Path, error: int, first: float, last: float, in_place: bool = False) -> None:
        self.root, self.error, self.first, self.last = os.path.abspath(root), error, first, last  # noqa: PTH100
        self.in_place = in_place
        self.calls: list[str] = []
        self._open: dict[int, str] = {}

    def has(self, path: Any) -> bool:
        """Whether a path, or a descriptor opened here, is below the folder."""
        if isinstance(path, int):
            return path in self._open
        place = os.path.abspath(os.fsdecode(path))  # noqa: PTH100
        return place == self.root or place.startswith(self.root + os.sep)

    def step(self, what: str, path: Any) -> None:
        """Count a call; raises OSError if it is one that fails. Calls on descriptors name no file."""
        name = self._open.get(path) or os.fsdecode(path)
        self.calls.append(f"{what} {Path(name).name}")
        if self.first <= len(self.calls) <= self.last:
            if self.error == KILLED and what != "write":
                self.kill()
            raise OSError(
                self.error, os.strerror(abs(self.error)), None if isinstance(path, int) or what == "write" else name
            )

    def kill(self) -> None:
        """End this process at once."""
        os.kill(os.getpid(), signal.SIGKILL)

    def opened(self, descriptor: int, path: Any) -> None:
        self._open[descriptor] = os.fsdecode(path)

    def closed(self, descriptor: int) -> None:
        self._open.pop(descriptor, None)


class _Raw(io.FileIO):
    """A file whose writes are counted; the one that fails has written half."""

    def __init__(self, disk: FaultyDisk, path: Any, mode: str) -> None:
        super().__init__(path, mode)
        self._disk, self._path = disk, path

    def write(self, data: Any) -> int:
        try:
            self._disk.step("write", self._path)
        except OSError:
            super().write(bytes(data)[: len(data) // 2])
            if self._disk.error == KILLED:
                self._disk.kill()
            raise
        return super().write(data)


def _open(disk: FaultyDisk, plain: Callable[..., Any]) -> Callable[..., Any]:
    def opened(file: Any, mode: str = "r", buffering: int = -1, encoding: str | None = None, errors: str | None = None,
               newline: str | None = None, *rest: Any, **named: Any) -> Any:  # fmt: skip
        if isinstance(file, int) or not set(mode) & set("wax+") or not disk.has(file):
            return plain(file, mode, buffering, encoding, errors, newline, *rest, **named)
        if disk.in_place and mode.replace("b", "") == "r+":
            return plain(file, mode, buffering, encoding, errors, newline, *rest, **named)  # the tests write no more
        disk.step("open", file)
        raw = _Raw(disk, file, mode.replace("b", "").replace("t", ""))
        buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, encoding or "utf-8", errors, newline)

    return opened


def _os_open(disk: FaultyDisk, plain: Callable[..., int]) -> Callable[..., int]:
    def opened(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        ours = disk.has(path if dir_fd is None else dir_fd)
        if ours and flags & WRITING:
            disk.step("open", path)
        descriptor = plain(path, flags, mode, dir_fd=dir_fd)
        if ours:
            disk.opened(descriptor, path)
        return descriptor

    return opened


def _counted(disk: FaultyDisk, name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    def call(path: Any, *rest: Any, **named: Any) -> Any:
        if disk.in_place and (name == "fsync" or (name in {"rename", "replace"} and Path(rest[0]).exists())):
            return plain(path, *rest, **named)
        if name in {"rename", "replace"} and not os.path.lexists(path):
            return plain(path, *rest, **named)  # which is what the system says first
        targets = (path, *rest[:1]) if name in {"rename", "replace", "link"} else (path,)
        if any(map(disk.has, targets if named.get("dir_fd") is None else (named["dir_fd"],))):
            disk.step({"pwrite": "write"}.get(name, name), path)
        return plain(path, *rest, **named)

    return call


def _close(disk: FaultyDisk, plain: Callable[[int], None]) -> Callable[[int], None]:
    def close(descriptor: int) -> None:
        disk.closed(descriptor)
        plain(descriptor)

    return close


@contextlib.contextmanager
def fail_writing(
    root: Path, error: int = FULL, first: float = 1, last: float = float("inf"), in_place: bool = False
) -> Iterator[FaultyDisk]:
    """While the block runs, writing below ``root`` fails from call number ``first`` to ``last``."""
    disk = FaultyDisk(root, error, first, last, in_place)
    names = CHANGES if error != FULL else GROWS
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builtins, "open", _open(disk, builtins.open))
        patch.setattr(io, "open", _open(disk, io.open))
        patch.setattr(os, "open", _os_open(disk, os.open))
        patch.setattr(os, "close", _close(disk, os.close))
        for name in (*names, "pwrite", "write", "fsync", "ftruncate", "posix_fallocate"):
            patch.setattr(os, name, _counted(disk, name, getattr(os, name)))
        if error not in {FULL, KILLED}:
            access = os.access
            patch.setattr(
                os,
                "access",
                lambda path, mode, **how: not (mode & os.W_OK and disk.has(path)) and access(path, mode, **how),
            )
        yield disk


def count(root: Path, work: Callable[[], Any]) -> list[str]:
    """The calls that write below a folder while ``work`` runs, none of which fails."""
    with fail_writing(root, first=float("inf")) as disk:
        work()
    return disk.calls


def contents(root: Path) -> dict[str, bytes | None]:
    """{path: bytes} of everything below a folder, None for folders."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes() if path.is_file() else None for path in root.rglob("*")
    }
