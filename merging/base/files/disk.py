"""The disk that is written to: free space, sizes of folders, and errors of the disk in plain words."""

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

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
UNSUPPORTED = {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.ENODEV}  # by a file system that reserves nothing
OTHER_STORE = "set MERGESCOPE_STORE to a folder that can be written to"  # the way out if the store cannot be
STILL = " Stored results can still be viewed."


def free_bytes(folder: Path) -> int:
    """Free bytes on the disk of a folder that exists or will be made."""
    return shutil.disk_usage(nearest_existing(folder)).free


def is_writable(folder: Path) -> bool:
    """Whether a folder that exists or will be made can be written to."""
    return os.access(nearest_existing(folder), os.W_OK | os.X_OK)


def nearest_existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists, which may be a file."""
    return next(path for path in (folder.absolute(), *folder.absolute().parents) if os.access(path, os.F_OK))


@contextlib.contextmanager
def explain_os_errors(what: str, remedy: str = "choose another place", done: str = "written") -> Iterator[None]:
    """Turn an OSError raised while ``what`` is ``done`` into a StoreError that says so; ``elsewhere`` is a way out."""
    try:
        yield
    except BrokenPipeError:  # nobody reads the progress that is printed meanwhile; the disk is well
        raise
    except OSError as error:
        kept = " Nothing of it was kept." if done == "written" else ""
        if error.errno in FULL:
            words = (
                f"The disk is full ({_describe_os_error(error)}): {what} was not {done}.{kept} "
                f"Free some space, or {remedy}."
            )
        else:
            still = STILL if remedy == OTHER_STORE else ""
            words = (
                f"{what} cannot be {done} ({_describe_os_error(error)}).{kept}{still} {remedy[0].upper()}{remedy[1:]}."
            )
        raise StoreError(words) from None


def _describe_os_error(error: OSError) -> str:
    """The system's words for an error, with the name of the file unless it is a temporary one."""
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
    """Rename ``source`` to ``target`` in the block; a FileNotFoundError is ignored if the rename has happened.

    A network file system whose reply is lost asks again, and is then told that there is nothing to rename.
    """
    before = _identity(source)
    try:
        yield
    except FileNotFoundError:
        if before is None or _identity(target) != before:
            raise


def _identity(path: Path) -> tuple[int, int, int] | None:
    try:
        state = path.lstat()
    except OSError:
        return None
    return state.st_dev, state.st_ino, state.st_mtime_ns  # the number of a deleted one is soon given to another


def exists_on_shared_disk(path: Path) -> bool:
    """Whether it is there, also if another computer has only just put it there.

    A network file system may remember for a minute that a name was missing; listing the folder refreshes that.
    """
    if path.exists():
        return True
    with contextlib.suppress(OSError):
        os.listdir(path.parent)  # noqa: PTH208 - nothing is done with the names
    return path.exists()


def reserve(descriptor: int, size: int) -> None:
    """Give an empty file its size, and its place on the disk where the system can: writing it then takes half the time.

    Raises:
        OSError: there is not so much room, or the file cannot be written to.
    """
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(descriptor, 0, size)
            return
        except OSError as error:
            if error.errno not in UNSUPPORTED:
                raise
    os.ftruncate(descriptor, size)


def temporary_space_error(use: str, needed: int) -> MergingError:
    """What is raised where the folder for temporary files lacks ``needed`` bytes; ``use`` is who takes them."""
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
    return sum(size for *_, size in list_files_below(folder, ()))


def list_files_below(folder: Path, parents: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str, int]]:
    """(folders on the way, name, size) of every file; files that vanish meanwhile are left out."""
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
    """The same file under a second name, or a copy where the file system has no links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
