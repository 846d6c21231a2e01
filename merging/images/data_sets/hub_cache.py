"""A data set in the Hub's cache: the folder of a repository, ``datasets--ORGANIZATION--NAME``, and its snapshots.

The ``datasets`` library has another cache, whose folders are called ``ORGANIZATION___NAME``.
"""

from __future__ import annotations

from pathlib import Path

from merging.base.errors import TaskError
from merging.base.text import first_few, printable

REPOSITORY_PREFIX, LIBRARY = "datasets--", "___"
SNAPSHOTS_FOLDER, MAIN_REF = "snapshots", "refs/main"
MAX_REF_BYTES = 200  # bytes of a file that names a commit


def is_repository(path: Path) -> bool:
    """Whether a path is the folder of a data set's repository in the cache."""
    return path.name.startswith(REPOSITORY_PREFIX) and (path / SNAPSHOTS_FOLDER).is_dir()


def find_snapshot(path: Path) -> Path:
    """The snapshot in a repository's folder of the cache: that of ``refs/main``, or the only one.

    Other paths are returned unchanged.

    Raises:
        TaskError: there is no snapshot, or there are several and ``refs/main`` names none of them.
    """
    if not is_repository(path):
        return path
    commits = sorted(
        entry.name for entry in (path / SNAPSHOTS_FOLDER).iterdir() if entry.is_dir() and not entry.is_symlink()
    )
    main = _read_main_commit(path)
    if main in commits:
        return path / SNAPSHOTS_FOLDER / main
    if len(commits) == 1:
        return path / SNAPSHOTS_FOLDER / commits[0]
    if not commits:
        raise TaskError(f"{title(path)} is in the cache without any snapshot: none of its files has been fetched yet.")
    raise TaskError(
        f"{title(path)} has several snapshots in the cache, and refs/main names none of them: {first_few(commits)}. "
        f"Give the folder of one, {SNAPSHOTS_FOLDER}/COMMIT."
    )


def _read_main_commit(path: Path) -> str:
    """The commit in ``refs/main``; empty if there is no such file."""
    try:
        with (path / MAIN_REF).open("rb") as file:
            return file.read(MAX_REF_BYTES).decode("ascii", "replace").strip()
    except OSError:
        return ""


def title(path: Path) -> str:
    """A data set's name: ORGANIZATION/NAME in a cache, with the commit of a snapshot; else the path's name."""
    folder, commit = (path.parent.parent, path.name) if path.parent.name == SNAPSHOTS_FOLDER else (path, "")
    if not folder.name.startswith(REPOSITORY_PREFIX):
        return path.name.replace(LIBRARY, "/")
    name = folder.name.removeprefix(REPOSITORY_PREFIX).replace("--", "/")
    return printable(f"{name}@{commit[:12]}" if commit else name)
