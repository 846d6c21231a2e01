"""The disk that is written to: free space, sizes of folders, and errors of the disk in plain words."""

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
    """Free bytes on the disk of a folder that exists or will be made."""
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    return shutil.disk_usage(existing).free


@contextlib.contextmanager
def explained(what: str) -> Iterator[None]:
    """Turn an OSError raised while ``what`` is written into a StoreError of one sentence."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise StoreError(
                f"The disk is full ({error.strerror}): {what} was not written and nothing of it was kept. "
                "Free some space, or choose another place."
            ) from None
        raise StoreError(f"{what} cannot be written ({error.strerror}); nothing of it was kept.") from None


def sync_all(folder: Path) -> None:
    """Sync a folder and everything in it to the disk."""
    for path in (*folder.rglob("*"), folder):
        sync(path)


def sync(path: Path) -> None:
    """Sync a file or folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def require_room(place: Path, needed: int) -> None:
    """Raise StoreError if ``needed`` bytes are more than the disk has free."""
    free = free_bytes(place)
    if needed > free:
        raise StoreError(f"{place.name} needs {size_text(needed)} on its disk; {size_text(free)} are free.")


def folder_size(folder: Path) -> int:
    """Bytes of all files in a folder and its subfolders."""
    return sum(size for *_, size in files_below(folder, ()))


def files_below(folder: Path, parents: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str, int]]:
    """(folders on the way, name, size) of every file; files that vanish meanwhile are left out."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield from files_below(Path(entry.path), (*parents, entry.name))
                else:
                    yield parents, entry.name, entry.stat(follow_symlinks=False).st_size
    except OSError:
        return
