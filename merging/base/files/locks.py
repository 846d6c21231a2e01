"""Locks between processes. They only avoid duplicate work: a process that does not get a lock continues without it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from merging.base.files.processes import NO_PROCESS, ProcessId, this_process

POLL_SECONDS = 0.5  # between two checks of the holder
MAX_WAIT_SECONDS = 3600.0  # longest time that a process waits for a lock


@contextlib.contextmanager
def hold_lock(
    path: Path,
    check_cancel: Callable[[], None] = lambda: None,
    on_holder: Callable[[ProcessId], None] = lambda holder: None,
    max_seconds: float = MAX_WAIT_SECONDS,
) -> Iterator[bool]:
    """Hold a lock while the block runs; yield whether it is held.

    The lock is not held if the file system has no locks or is not writable, if a signal has halted the holder, or after
    ``max_seconds`` seconds. While another process holds the lock, ``on_holder`` is called with that process (number 0
    if it is unknown), and so is ``check_cancel``, which may raise to stop waiting.
    """
    lock = _acquire(path, check_cancel, on_holder, max_seconds)
    try:
        yield lock is not None
    finally:
        if lock is not None:
            lock.release()


def _acquire(
    path: Path, check_cancel: Callable[[], None], on_holder: Callable[[ProcessId], None], max_seconds: float
) -> FileLock | None:
    end = time.monotonic() + max_seconds
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = FileLock(path, fallback_to_soft=False)  # a soft lock would outlive a killed holder
        while True:
            check_cancel()
            with contextlib.suppress(Timeout):
                lock.acquire(timeout=min(POLL_SECONDS, max_seconds))
                break
            holder = _read_holder(path)
            if holder.is_halted() or time.monotonic() > end:
                return None
            on_holder(holder)
    except (OSError, NotImplementedError):
        return None
    with contextlib.suppress(OSError):
        path.write_text(this_process().text, "ascii")
    return lock


def _read_holder(path: Path) -> ProcessId:
    """The process that the lock's file names as its holder; ``NO_PROCESS`` if it names none."""
    with contextlib.suppress(OSError, ValueError):
        if process := ProcessId.parse(path.read_text("ascii")):
            return process
    return NO_PROCESS
