"""The disk that something is written to: room on it, sizes in words, and what it means when it refuses."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from merging.errors import StoreError
from merging.text import size_text

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def free_bytes(folder: Path) -> int:
    """Bytes that are free where the folder is, or will be."""
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    return shutil.disk_usage(there).free


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


def sync_all(folder: Path) -> None:
    """Bring a folder and all that is in it to the disk."""
    for path in (*folder.rglob("*"), folder):
        sync(path)


def sync(path: Path) -> None:
    """Bring a file or folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def require_room(place: Path, needed: int) -> None:
    """Raise StoreError if ``needed`` bytes are more than the disk has."""
    free = free_bytes(place)
    if needed > free:
        raise StoreError(f"{place.name} needs {size_text(needed)} on its disk; {size_text(free)} are free.")


def folder_size(folder: Path) -> int:
    """Bytes of all files in a folder."""
    return sum(size for *_, size in files_below(folder, ()))


def files_below(folder: Path, place: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str, int]]:
    """Folders on the way, name and size of every file; what vanishes meanwhile is left out."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield from files_below(Path(entry.path), (*place, entry.name))
                else:
                    yield place, entry.name, entry.stat(follow_symlinks=False).st_size
    except OSError:
        return
