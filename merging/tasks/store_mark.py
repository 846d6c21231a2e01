"""A mark: a file in a store that exists as long as a program waits for workers.

A worker that reads the mark sees the store's folder. When the mark is gone, the requesting program no longer waits.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from merging.base.errors import WorkerError
from merging.base.files.disk import STORE_REMEDY, explain_os_errors
from merging.base.files.temporary import temporary_name

CHECK_SECONDS = 0.5  # between two checks whether the requesting program still waits
Mark = Mapping[str, str]  # the file's "path" and its "text"


@contextmanager
def write_mark(folder: Path) -> Iterator[Mark]:
    """A mark in ``folder`` while the block runs. Raises StoreError if it cannot be written."""
    path, text = folder.absolute() / temporary_name(), uuid.uuid4().hex
    with explain_os_errors("The store", STORE_REMEDY):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    try:
        yield {"path": str(path), "text": text}
    finally:
        path.unlink(missing_ok=True)


def sees_mark(mark: Any) -> bool:
    """Whether this process reads in the mark's file the text that the requesting program wrote."""
    if not isinstance(mark, Mapping):
        return False
    try:
        return Path(str(mark["path"])).read_text("utf-8") == str(mark["text"])
    except (OSError, ValueError, KeyError):
        return False


def watch_for_end(mark: Any) -> Callable[[], bool]:
    """A function that returns whether the requesting program is gone; it reads the file at most twice a second.

    Raises:
        WorkerError: this worker does not see the store.
    """
    if not sees_mark(mark):
        folder = Path(str(mark.get("path", ""))).parent if isinstance(mark, Mapping) else "no folder"
        raise WorkerError(f"{describe_unseen_store(folder)}.")
    checked_at, gone = time.monotonic(), False

    def is_gone() -> bool:
        nonlocal checked_at, gone
        if not gone and time.monotonic() - checked_at > CHECK_SECONDS:
            checked_at, gone = time.monotonic(), not sees_mark(mark)
        return gone

    return is_gone


def describe_unseen_store(folder: object) -> str:
    """A sentence, without its period, that workers cannot write into a store."""
    return f"The workers do not see the store at {folder}; put MERGESCOPE_STORE on a file system that all share"
