"""Exports of runs in the store: one folder for each run and target."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from merging.base.errors import StoreError
from merging.base.files import atomic
from merging.base.files.short_digest import SHORT_DIGEST
from merging.base.text import printable
from merging.sharing.export.export_names import TARGETS

FOLDER = "exports"
STORED_FORMAT = "file"  # one file with the pretrained model's tensor names
TARGET_KINDS = (*TARGETS, STORED_FORMAT)
CARD_FILE = "README.md"
MAX_FILES = 5000  # of one export
MODEL_FILE = "model.safetensors"
FOLDER_NAME_PATTERN = re.compile(rf"({SHORT_DIGEST.pattern})-({'|'.join(TARGET_KINDS)})")


@dataclass(frozen=True)
class StoredExport:
    """A folder with an export of the run ``run_id`` for the target ``target_key``."""

    run_id: str
    target_key: str
    folder: Path

    @property
    def files(self) -> list[tuple[str, int]]:
        """Paths within the folder and their bytes."""
        paths = sorted(path for path in self.folder.rglob("*") if path.is_file() and not path.is_symlink())[:MAX_FILES]
        return [(path.relative_to(self.folder).as_posix(), path.stat().st_size) for path in paths]

    @property
    def nbytes(self) -> int:
        """Bytes of all files."""
        return sum(size for _, size in self.files)

    def read_card(self) -> str:
        """The model card as it was written; empty if there is none."""
        try:
            return (self.folder / CARD_FILE).read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            return ""


def export_command(run_id: str, target_key: str, folder: Path, device: str = "auto") -> list[str]:
    """The command of the command line that exports a stored run into a folder, and replaces an earlier export."""
    destination = folder / MODEL_FILE if target_key == STORED_FORMAT else folder
    target_words = [] if target_key == STORED_FORMAT else ["--to", target_key]
    return ["export", run_id, "--out", str(destination), *target_words, "--overwrite", "--device", device]


def resolve_typed_folder(text: str) -> Path:
    """The absolute path of a folder that a user typed, which begins with / or ~.

    Raises:
        StoreError: the path is relative, so that it depends on the working folder, or is invalid on this machine.
    """
    if re.match(r"[A-Za-z]:[\\/]|\\\\", text) and os.sep == "/":
        raise StoreError(f"{printable(text)} is a Windows path; on this machine paths begin with / or ~.")
    if re.match(r"[A-Za-z][\w+.-]+:", text):
        raise StoreError(f"{printable(text)} is an address, not a folder; write a path that begins with / or ~.")
    try:
        path = Path(text).expanduser()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            path.lstat()
    except (OSError, ValueError, RuntimeError) as error:  # the home of an unknown user, a NUL, a name too long
        raise StoreError(
            f"{printable(text)} is not a valid path on this machine ({printable(str(error), 80)})."
        ) from None
    if not path.is_absolute():
        raise StoreError(
            f"{printable(text)} is a relative path. Write an absolute one, such as {Path.home() / path} or ~/{path}."
        )
    return path


def default_folder(root: Path, run_id: str, target_key: str) -> Path:
    """The default folder of an export."""
    return root.absolute() / FOLDER / f"{run_id}-{target_key}"


def list_exports(root: Path) -> Iterator[StoredExport]:
    """Every export in the store, newest first."""
    folder = root.absolute() / FOLDER
    try:
        paths = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    except OSError:
        return
    for path in paths:
        if path.is_dir() and (match := FOLDER_NAME_PATTERN.fullmatch(path.name)):
            yield StoredExport(match[1], match[2], path)


def delete_export(root: Path, export: StoredExport) -> None:
    """Remove an export in the store; others stay. Raises StoreError if the folder cannot be removed."""
    if export.folder.parent == root.absolute() / FOLDER:
        atomic.remove_entry(export.folder, "The export")
