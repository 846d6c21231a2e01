"""A file in a store that is there as long as a program waits for workers.

It says whether a worker sees the store's folder, and whether the program that asked still waits.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from merging.base.errors import WorkerError
from merging.base.files.disk import OTHER_STORE, explain_os_errors
from merging.base.files.temporary import temporary_name

LOOK = 0.5  # seconds between two looks at whether the program that asked still waits
Mark = Mapping[str, str]  # the path of the file, and the text in it


@contextmanager
def write_mark(folder: Path) -> Iterator[Mark]:
    """A file in ``folder`` for as long as the block runs. Raises StoreError if there can be none."""
    path, text = folder.absolute() / temporary_name(), uuid.uuid4().hex
    with explain_os_errors("The store", OTHER_STORE):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    try:
        yield {"path": str(path), "text": text}
    finally:
        path.unlink(missing_ok=True)


def sees_mark(mark: Any) -> bool:
    """Whether the file holds here what the program that asked wrote there."""
    if not isinstance(mark, Mapping):
        return False
    try:
        return Path(str(mark["path"])).read_text("utf-8") == str(mark["text"])
    except (OSError, ValueError, KeyError):
        return False


def watch_for_end(mark: Any) -> Callable[[], bool]:
    """A function that says whether the program that asked is gone; it may be called as often as one likes.

    Raises:
        WorkerError: this worker does not see the store.
    """
    if not sees_mark(mark):
        folder = Path(str(mark.get("path", ""))).parent if isinstance(mark, Mapping) else "no folder"
        raise WorkerError(f"{describe_unseen_store(folder)}.")
    looked, gone = time.monotonic(), False

    def is_gone() -> bool:
        nonlocal looked, gone
        if not gone and time.monotonic() - looked > LOOK:
            looked, gone = time.monotonic(), not sees_mark(mark)
        return gone

    return is_gone


def describe_unseen_store(folder: object) -> str:
    """That workers cannot write into a store; without the period."""
    return f"The workers do not see the store at {folder}; put MERGESCOPE_STORE on a file system that all share"
