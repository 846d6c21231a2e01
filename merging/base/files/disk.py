"""Disks: free space, sizes of folders, synced writes, and errors of the disk in plain words."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from merging.base.errors import MergingError, StoreError
from merging.base.text import printable, size_text

DISK_FULL_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# File systems that cannot reserve space.
NO_RESERVE_ERRORS = {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.ENODEV}
STORE_REMEDY = "set MERGESCOPE_STORE to a folder that can be written to"  # the remedy if the store is not writable
VIEWING_STILL_WORKS = " Stored results can still be viewed."


def free_bytes(folder: Path) -> int:
    """Free bytes on the disk of a folder, which need not exist yet."""
    return shutil.disk_usage(nearest_existing(folder)).free


def is_writable(folder: Path) -> bool:
    """Whether a folder, which need not exist yet, can be written to."""
    return os.access(nearest_existing(folder), os.W_OK | os.X_OK)


def nearest_existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists, which may be a file."""
    return next(path for path in (folder.absolute(), *folder.absolute().parents) if os.access(path, os.F_OK))


@contextlib.contextmanager
def explain_os_errors(subject: str, remedy: str = "choose another folder", action: str = "written") -> Iterator[None]:
    """Turn an OSError in the block into a StoreError: "``subject`` cannot be ``action``", with its ``remedy``."""
    try:
        yield
    except BrokenPipeError:  # the reader of the printed progress is gone; the disk is fine
        raise
    except OSError as error:
        loss = " Nothing of it was kept." if action == "written" else ""
        if error.errno in DISK_FULL_ERRORS:
            message = (
                f"The disk is full ({_describe_os_error(error)}): {subject} was not {action}.{loss} "
                f"Free some space, or {remedy}."
            )
        else:
            reassurance = VIEWING_STILL_WORKS if remedy == STORE_REMEDY else ""
            advice = f"{remedy[0].upper()}{remedy[1:]}"
            message = f"{subject} cannot be {action} ({_describe_os_error(error)}).{loss}{reassurance} {advice}."
        raise StoreError(message) from None


def _describe_os_error(error: OSError) -> str:
    """The system's description of an error, with the name of the file unless it is a temporary one."""
    path = error.filename if isinstance(error.filename, str | bytes | Path) else ""
    name = printable(Path(os.fsdecode(path)).name, 80)
    return f"{error.strerror or type(error).__name__}{f': {name}' if name and 'tmp-' not in name else ''}"


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


@contextlib.contextmanager
def rename_in_block(source: Path, target: Path) -> Iterator[None]:
    """Rename ``source`` to ``target`` in the block; a FileNotFoundError is ignored if the rename succeeded.

    A network file system that loses a reply repeats the request, which then fails because ``source`` is gone.
    """
    identity = _identity(source)
    try:
        yield
    except FileNotFoundError:
        if identity is None or _identity(target) != identity:
            raise


def _identity(path: Path) -> tuple[int, int, int] | None:
    try:
        state = path.lstat()
    except OSError:
        return None
    return state.st_dev, state.st_ino, state.st_mtime_ns  # the inode number of a deleted file is soon reused


def exists_on_shared_disk(path: Path) -> bool:
    """Whether a path exists, even if another computer has created it only just now.

    A network file system may remember for a minute that a name is missing; listing the folder refreshes that.
    """
    if path.exists():
        return True
    with contextlib.suppress(OSError):
        os.listdir(path.parent)  # noqa: PTH208 - the names are not needed
    return path.exists()


def reserve_space(descriptor: int, size: int) -> None:
    """Set the size of an empty file, and allocate its blocks if the system can, which halves the time of writing it.

    Raises:
        OSError: there is not enough space, or the file cannot be written to.
    """
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(descriptor, 0, size)
            return
        except OSError as error:
            if error.errno not in NO_RESERVE_ERRORS:
                raise
    os.ftruncate(descriptor, size)


def temporary_space_error(use: str, needed: int) -> MergingError:
    """The error for a folder for temporary files that lacks ``needed`` bytes; ``use`` begins the sentence.

    ``use`` is a subject with its verb, such as "The merge needs".
    """
    return MergingError(
        f"{use} {size_text(needed)} in the folder for temporary files, {tempfile.gettempdir()}, which has less free. "
        "Let the environment variable TMPDIR name a roomier folder."
    )


def require_space(path: Path, needed: int) -> None:
    """Raise StoreError if ``needed`` bytes are more than the disk has free."""
    free = free_bytes(path)
    if needed > free:
        raise StoreError(f"{path.name} needs {size_text(needed)} on its disk; {size_text(free)} are free.")


def folder_size(folder: Path) -> int:
    """Bytes of all files in a folder and its subfolders."""
    return sum(size for *_, size in list_files_below(folder, parents=()))


def list_files_below(folder: Path, parents: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str, int]]:
    """(parent folders below ``folder``, name, size) of every file; files that are removed meanwhile are left out."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield from list_files_below(Path(entry.path), (*parents, entry.name))
                else:
                    yield parents, entry.name, entry.stat(follow_symlinks=False).st_size
    except OSError:
        return


def link_or_copy(source: Path, target: Path) -> None:
    """Link a file under a second name, or copy it if the file system has no links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
