"""Small files, written completely or not at all, and folders of JSON records."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from merging.base.errors import MergingError
from merging.base.files.disk import DISK_FULL_ERRORS, rename_in_block, sync
from merging.base.files.temporary import temporary_name

# Files that reserve space on the disk, and bytes of each.
RESERVE_FILES, RESERVE_BYTES = ("reserve-1", "reserve-2"), 1 << 13
T = TypeVar("T")


def write_text(path: Path, text: str) -> None:
    """Write a text file; after a failure the file has not changed."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, raw: bytes) -> None:
    """Write a small file; after a failure the file has not changed."""
    partial = path.with_name(f".{path.name}.{temporary_name()}")
    try:
        partial.write_bytes(raw)
        sync(partial)
        with rename_in_block(partial, path):
            partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_reserve_files(folder: Path) -> None:
    """Reserve space on the disk for small files in a folder that must be written even when the disk is full."""
    for name in RESERVE_FILES:
        (folder / name).write_bytes(
            os.urandom(RESERVE_BYTES)
        )  # not zeros, for which some file systems allocate no space
        sync(folder / name)


def remove_reserve_files(folder: Path) -> None:
    """Free the space that was reserved in a folder."""
    with contextlib.suppress(OSError):
        for name in RESERVE_FILES:
            (folder / name).unlink(missing_ok=True)


def write_reserved(path: Path, raw: bytes) -> None:
    """Write a small file; on a full disk, into the space reserved in its folder.

    After a failure the file has not changed.
    """
    try:
        write_bytes(path, raw)
    except OSError as error:
        reserved = next((candidate for name in RESERVE_FILES if (candidate := path.with_name(name)).exists()), None)
        if error.errno not in DISK_FULL_ERRORS or reserved is None or len(raw) > RESERVE_BYTES:
            raise
        with reserved.open("r+b") as file:
            file.write(raw)
            file.truncate()
        sync(reserved)
        with rename_in_block(reserved, path):
            reserved.replace(path)


def encode_json(data: Any) -> bytes:
    """Strict JSON (no NaN), as ``write_json`` writes it."""
    return (json.dumps(data, indent=1, allow_nan=False, ensure_ascii=False) + "\n").encode()


def write_json(path: Path, data: Any) -> None:
    """Write strict JSON (no NaN); after a failure the file has not changed."""
    write_bytes(path, encode_json(data))


@dataclass(frozen=True)
class JsonRecords:
    """Records in one folder, one JSON file for each. Records of another version and other files are ignored.

    ``names`` lists the newest ``max_records`` records.
    """

    folder: Path
    version: int
    max_records: int = 5000

    def write(self, name: str, record: Mapping[str, Any]) -> None:
        """Store a record, replacing any record of that name.

        Raises:
            OSError: the disk cannot be written to. ValueError: the record holds a value that JSON does not have.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_json(self.path(name), {"version": self.version, **record})

    def read(self, name: str, convert: Callable[[Any], T]) -> T | None:
        """A record, converted by ``convert``; None if there is no such record, or if ``convert`` raises an error."""
        try:
            record = json.loads(self.path(name).read_bytes())
            return convert(record) if record["version"] == self.version else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, MergingError):
            return None

    def names(self) -> list[str]:
        """Names of the records, the newest first."""
        change_times = {}
        with contextlib.suppress(OSError):
            for path in self.folder.glob("*.json"):
                with contextlib.suppress(OSError):  # the record was removed meanwhile
                    change_times[path.stem] = path.stat().st_mtime_ns
        return sorted(change_times, key=lambda name: (-change_times[name], name))[: self.max_records]

    def remove(self, name: str) -> None:
        """Remove a record; do nothing if it does not exist. Raises OSError if it cannot be removed."""
        self.path(name).unlink(missing_ok=True)

    def path(self, name: str) -> Path:
        """The file of a record."""
        return self.folder / f"{name}.json"
