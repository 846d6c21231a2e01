"""Links: one that leads out of its folder is not followed, so that a listed folder shows nothing but what is in it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from merging.errors import CheckpointError
from merging.text import printable

MOST = 5000  # entries of a model's folder whose state is looked at


def inside(path: Path) -> Path:
    """The file that a path means, links followed.

    Only inside of the folder, and from a snapshot of the Hugging Face cache to the blobs beside it.

    Raises:
        CheckpointError: the path is a link that leads elsewhere; nothing is said of what is there.
    """
    try:
        if not path.is_symlink():
            return path
        target, folder = Path(os.path.realpath(path)), Path(os.path.realpath(path.parent))
    except (OSError, ValueError):  # what cannot be looked at cannot be opened, which says why
        return path
    if not target.is_relative_to(folder) and not _in_hub_cache(target, folder):
        raise CheckpointError(
            f"{printable(path.name, 80)} is a link that leads outside of its folder; give the file itself."
        )
    return target


def _in_hub_cache(target: Path, folder: Path) -> bool:
    """Whether a snapshot's file leads to a blob of the same repository."""
    repository = target.parent.parent
    at_home = folder.is_relative_to(repository / "snapshots") and repository.name.startswith(("models--", "datasets--"))
    return target.parent.name == "blobs" and at_home


def open_regular(path: Path) -> int:
    """A file descriptor of a regular file; pipes, folders and missing files are refused without waiting."""
    label = printable(path.name or str(path), 80)
    try:
        # Opened first and looked at through the descriptor: what is looked at is what is read. Pipes do not block.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        raise CheckpointError(f"{label}: not found.") from None
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL in it
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise CheckpointError(f"{label}: not found or not readable ({reason}).") from None
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        kind = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
        raise CheckpointError(f"{label} is {kind}; a file with weights is expected.")
    return descriptor


def file_state(descriptor: int) -> tuple[int, ...]:
    """What changes when an open file is written to."""
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def state_of(path: Path) -> tuple[int, ...]:
    """What changes when a file, or one of those in a model's folder, is written to; empty if it is not there."""
    try:
        inside = sorted(path.iterdir())[:MOST] if path.is_dir() else [path]
        found = [entry.stat() for entry in inside]
    except OSError:
        return ()
    return tuple(number for stat in found for number in (stat.st_size, stat.st_mtime_ns, stat.st_ino))
