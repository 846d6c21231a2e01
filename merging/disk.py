"""The disk that something is written to: room on it, sizes in words, and what it means when it refuses."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from merging.errors import StoreError
from merging.store import FULL


def free_bytes(folder: Path) -> int:
    """Bytes that are free where the folder is, or will be."""
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    return shutil.disk_usage(there).free


def size_text(count: float) -> str:
    """'1.2 GB'."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


@contextlib.contextmanager
def explained(what: str) -> Iterator[None]:
    """Turn what the disk says while ``what`` is written into a StoreError of one sentence."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise StoreError(
                f"The disk is full ({error.strerror}): {what} was not written, and nothing of it was left. "
                "Free some space, or choose another place."
            ) from None
        raise StoreError(f"{what} cannot be written ({error.strerror}); nothing of it was left.") from None
