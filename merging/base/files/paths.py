"""Opening untrusted paths.

Links that lead out of their folder are refused. So a visitor who may name the files of a folder reads
only what is stored there.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from merging.base.errors import CheckpointError
from merging.base.text import printable

MAX_FOLDER_ENTRIES = 5000  # entries of a model's folder that are examined


def is_utf8(path: Path) -> bool:
    """Whether a path is valid UTF-8, so that a text file can hold it."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def resolve_contained(path: Path) -> Path:
    """The file at a path, after following links.

    A link may lead to a file in its own folder, and from a snapshot in the Hub's cache to the blobs of its repository
    or to the blobs that all repositories of the cache share.

    Raises:
        CheckpointError: a link leads to another folder or to no file; the message does not name its target.
    """
    try:
        if not path.is_symlink():
            return path
        target, folder = Path(os.path.realpath(path)), Path(os.path.realpath(path.parent))
    except (OSError, ValueError):  # the caller fails to open the path, too, and states the reason
        return path
    if not target.is_relative_to(folder) and not _in_hub_cache(target, folder):
        raise CheckpointError(
            f"{printable(path.name, 80)} is a link that leads outside of its folder; give the file itself."
        )
    if not os.path.lexists(target):
        raise CheckpointError(f"{printable(path.name, 80)}: not found: it is a link to a file that does not exist.")
    return target


def _in_hub_cache(target: Path, folder: Path) -> bool:
    """Whether a snapshot's link leads to a blob of the same repository, or to one in blobs/XX of the whole cache."""
    repository = next((path.parent for path in (folder, *folder.parents) if path.name == "snapshots"), folder)
    shared = repository.parent / "blobs" / target.name[:2]
    return repository.name.startswith(("models--", "datasets--")) and target.parent in {repository / "blobs", shared}


def open_regular(path: Path) -> int:
    """A file descriptor of a regular file; pipes, folders and missing files are refused without waiting."""
    label = printable(path.name or str(path), 80)
    try:
        # Open first and check the descriptor, so that the checked file is the one that is read. Pipes do not block.
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


def file_fingerprint(descriptor: int) -> tuple[int, ...]:
    """Device, inode, size and modification time of an open file; they change when it is written to."""
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def path_fingerprint(path: Path) -> tuple[int, ...]:
    """Numbers that change when a file, or one in a model's folder, is written to; empty if the path does not exist."""
    try:
        paths = sorted(path.iterdir())[:MAX_FOLDER_ENTRIES] if path.is_dir() else [path]
        stats = [entry.stat() for entry in paths]
    except OSError:
        return ()
    return tuple(number for entry in stats for number in (entry.st_size, entry.st_mtime_ns, entry.st_ino))


def choose_unique_name(name: str, used: set[str]) -> str:
    """The name, with underscores appended until it differs from all in ``used`` regardless of case; ``used`` grows."""
    while name.casefold() in used:
        name += "_"
    used.add(name.casefold())
    return name
