"""Small files of this program, written whole or not at all, and folders of JSON records made of them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from merging.errors import MergingError
from merging.files.disk import renaming, sync
from merging.files.temporary import temporary_name

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
        with renaming(partial, path):
            partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_json(path: Path, data: Any) -> None:
    """Write strict JSON (no NaN); after a failure the file has not changed."""
    write_text(path, json.dumps(data, indent=1, allow_nan=False, ensure_ascii=False) + "\n")


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
            return build(record) if record.get("version", self.version) == self.version else None
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
