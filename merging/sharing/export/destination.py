"""The folder of an export: written completely or not at all, and replaced only if this program wrote it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from merging.base.errors import StoreError
from merging.base.files import atomic, disk
from merging.base.files.atomic import temporary_beside
from merging.base.files.records import write_json
from merging.study.runs.run import Run

MARK_FILE = "export.json"  # the list of the files that this program wrote
FORMAT = 1
FOLDER_MODE = 0o755


def why_not_writable(folder: Path, *, overwrite: bool = False) -> str:
    """Why a folder cannot be written; empty if it can."""
    if why := find_path_problem(folder):
        return why
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return ""
    if not folder.is_dir():
        return f"{folder} is a file; an export needs a folder. Choose another one."
    if not overwrite:
        return f"{folder} exists already; choose another folder, or replace it with --overwrite."
    if foreign_files := sorted(list_files(folder) - _read_mark(folder)):
        description = (
            f"such as {foreign_files[0]!r}"
            if (folder / MARK_FILE).is_file()
            else "and was not exported by this program"
        )
        return f"{folder} is a folder with other files in it, {description}; it is not replaced. Choose another folder."
    return ""


def find_path_problem(path: Path) -> str:
    """Why no file or folder can be created at a path, judged by its parents; empty if one can."""
    parent = disk.nearest_existing(path.absolute().parent)
    if not parent.is_dir():
        return f"{parent} is a file, so no file can be written in it. Choose another path."
    return "" if disk.is_writable(parent) else f"{parent} cannot be written to. Choose another path."


def list_files(folder: Path) -> set[str]:
    """Paths of all files, relative to the folder."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir() or path.is_symlink()}


def write_mark(folder: Path, run: Run | None, to: str) -> None:
    """List the files of this export, so that a later export may replace them."""
    run_entry = {"run": run.id} if run else {}
    write_json(folder / MARK_FILE, {"format": FORMAT, "to": to, **run_entry, "files": sorted(list_files(folder))})


def _read_mark(folder: Path) -> set[str]:
    """The files that an earlier export has written."""
    try:
        return {MARK_FILE, *map(str, json.loads((folder / MARK_FILE).read_bytes())["files"])}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return set()


@contextlib.contextmanager
def replace_folder(folder: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """A temporary folder that becomes ``folder`` if the block ends without an error, and is removed otherwise.

    Raises:
        StoreError: the folder exists, cannot be written, or the disk is full; an earlier folder does not change.
    """
    with temporary_beside(folder) as partial:
        if why := why_not_writable(folder, overwrite=overwrite):
            raise StoreError(why)
        yield partial
        disk.sync_all(partial)
        partial.chmod(FOLDER_MODE)
        target = folder.absolute()
        if overwrite:  # even if another process has just removed the earlier folder
            atomic.replace(partial, target)
        elif not atomic.publish(partial, target):
            raise StoreError(
                why_not_writable(folder) or f"{folder} was meanwhile written by another process; try again."
            )
