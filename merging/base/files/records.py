"""Small files of this program, written whole or not at all, and folders of JSON records made of them."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from merging.base.errors import MergingError
from merging.base.files.disk import FULL, rename_in_block, sync
from merging.base.files.temporary import temporary_name

RESERVES, RESERVED = ("reserve-1", "reserve-2"), 1 << 13  # files that keep room, and bytes of each
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


def reserve(folder: Path) -> None:
    """Take room on the disk for small files in a folder that must be written even when the disk is full."""
    for name in RESERVES:
        (folder / name).write_bytes(os.urandom(RESERVED))  # not zeros, for which some file systems take no room
        sync(folder / name)


def release(folder: Path) -> None:
    """Give back the room that was reserved in a folder."""
    with contextlib.suppress(OSError):
        for name in RESERVES:
            (folder / name).unlink(missing_ok=True)


def write_reserved(path: Path, raw: bytes) -> None:
    """Write a small file, on a full disk into room that its folder has reserved; after a failure it has not changed."""
    try:
        write_bytes(path, raw)
    except OSError as error:
        place = next((kept for name in RESERVES if (kept := path.with_name(name)).exists()), None)
        if error.errno not in FULL or place is None or len(raw) > RESERVED:
            raise
        with place.open("r+b") as file:
            file.write(raw)
            file.truncate()
        sync(place)
        with rename_in_block(place, path):
            place.replace(path)


def encode_json(data: Any) -> bytes:
    """Strict JSON (no NaN), as ``write_json`` writes it."""
    return (json.dumps(data, indent=1, allow_nan=False, ensure_ascii=False) + "\n").encode()


def write_json(path: Path, data: Any) -> None:
    """Write strict JSON (no NaN); after a failure the file has not changed."""
    write_bytes(path, encode_json(data))


@dataclass(frozen=True)
class JsonRecords:
    """Records in one folder, a JSON file each. Records of another version, and files that are no record, are ignored.

    ``most`` is how many of them, the newest, are listed.
    """

    folder: Path
    version: int
    most: int = 5000

    def write(self, name: str, record: Mapping[str, Any]) -> None:
        """Store a record in place of the one of that name.

        Raises:
            OSError, ValueError: the disk cannot be written to, or the record holds what is no JSON.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_json(self.path(name), {"version": self.version, **record})

    def read(self, name: str, build: Callable[[Any], T]) -> T | None:
        """What ``build`` makes of a record; None if there is none, or ``build`` refuses it."""
        try:
            record = json.loads(self.path(name).read_bytes())
            return build(record) if record["version"] == self.version else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, MergingError):
            return None

    def names(self) -> list[str]:
        """Names of the records, the newest first."""
        changed = {}
        with contextlib.suppress(OSError):
            for path in self.folder.glob("*.json"):
                with contextlib.suppress(OSError):  # it was removed meanwhile
                    changed[path.stem] = path.stat().st_mtime_ns
        return sorted(changed, key=lambda name: (-changed[name], name))[: self.most]

    def remove(self, name: str) -> None:
        """Remove a record; nothing happens if there is none. Raises OSError if it cannot be removed."""
        self.path(name).unlink(missing_ok=True)

    def path(self, name: str) -> Path:
        """The file of a record."""
        return self.folder / f"{name}.json"
