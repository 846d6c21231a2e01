"""Damaged entries of a store: moved to a folder of their own with the reason, so that they can be computed again."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import uuid
from dataclasses import dataclass
from pathlib import Path

from merging.base.files import atomic
from merging.base.files.records import write_json

FOLDER, NOTE_FILE = "corrupt", "damage.json"
ENTRY_NAME = re.compile(r"(.+)-[0-9a-f]{8}")  # the entry's own name, and random digits
RUN = "run"  # the kind of an entry without a note
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Damage:
    """A damaged entry: its kind ("run", "measurement", "point", "sweep", "draft"), name, reason, and current path.

    ``origin`` is its original path. An entry stays there if it is in a library (a folder of results that this store
    reads and never writes to) or in a read-only store.
    """

    kind: str
    name: str
    reason: str
    path: Path
    origin: Path

    @property
    def is_moved(self) -> bool:
        """Whether it was moved."""
        return self.path != self.origin

    @property
    def is_replaced(self) -> bool:
        """Whether a good entry has replaced it."""
        return self.is_moved and self.origin.exists()

    @property
    def sentence(self) -> str:
        """A sentence that states which entry is damaged and whether it was moved."""
        action = "it was set aside" if self.is_moved else "it is left where it is"
        why = f" ({self.reason})" if self.reason else ""
        return f"{self.kind.capitalize()} {self.name} is damaged{why}; {action} and counts as absent."


class Quarantine:
    """The damaged entries of the store in the folder ``root``."""

    def __init__(self, root: Path) -> None:
        self._root, self._folder = root, root / FOLDER
        self._unmoved: dict[Path, Damage] = {}  # by path, entries that were only recorded

    def check_and_move(self, path: Path, kind: str, reason: object, *, move: bool = True) -> None:
        """Set a damaged entry aside, or with ``move=False`` only record it; logs one warning for each entry.

        If another process has replaced the entry with a good copy meanwhile, nothing happens.
        """
        if not path.is_dir() or atomic.is_damaged(path):
            self.move_damaged(path, kind, reason, move=move)

    def move_damaged(self, path: Path, kind: str, reason: object, *, move: bool = True) -> None:
        """Set an entry aside that is known to be damaged, or only record it if it cannot be moved."""
        new_path = self._move(path, kind, str(reason)) if move else None
        damage = Damage(kind, path.stem, str(reason), new_path or path, path)
        if new_path is not None:
            self._unmoved.pop(path, None)
        elif not path.exists() or path in self._unmoved:  # another process has moved it, or it is recorded already
            return
        else:
            self._unmoved[path] = damage
        log.warning("%s", damage.sentence)

    def _move(self, path: Path, kind: str, reason: str) -> Path | None:
        """Move an entry into the quarantine folder and return its new path; None if it cannot be moved."""
        new_path = self._folder / f"{path.stem}-{uuid.uuid4().hex[:8]}"
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if path.is_dir():
                path.rename(new_path)
            else:
                new_path.mkdir(mode=0o700)
                path.rename(new_path / path.name)
        except OSError:
            with contextlib.suppress(OSError):
                new_path.rmdir()
            return None
        with contextlib.suppress(OSError):  # without the note, only the reason is lost
            origin = path.relative_to(self._root).as_posix()
            write_json(new_path / NOTE_FILE, {"kind": kind, "name": path.stem, "reason": reason, "origin": origin})
        return new_path

    def list_damage(self) -> list[Damage]:
        """Every damaged entry: those that were set aside, newest first, then those that could not be moved."""
        with contextlib.suppress(OSError):
            paths = [path for path in self._folder.iterdir() if ENTRY_NAME.fullmatch(path.name)]
            paths.sort(key=lambda path: path.stat().st_mtime_ns, reverse=True)
            return [*map(self._read_note, paths), *self._list_unmoved()]
        return self._list_unmoved()

    def _list_unmoved(self) -> list[Damage]:
        """The recorded entries that no good copy has replaced meanwhile."""
        return [damage for path, damage in self._unmoved.items() if not path.is_dir() or atomic.is_damaged(path)]

    def remove(self, damage: Damage) -> None:
        """Delete an entry that was set aside. Raises StoreError if it cannot be removed."""
        if damage.path.parent == self._folder:
            atomic.remove_entry(damage.path, f"{damage.kind.capitalize()} {damage.name}")

    def _read_note(self, folder: Path) -> Damage:
        """A damaged entry with its note; one whose note could not be written counts as a run."""
        name = folder.name.rpartition("-")[0]
        note = {"kind": RUN, "name": name, "reason": "", "origin": f"runs/{name}"}
        with contextlib.suppress(OSError, ValueError, TypeError):
            note |= json.loads((folder / NOTE_FILE).read_bytes())
        return Damage(
            str(note["kind"]), str(note["name"]), str(note["reason"]), folder, self._root / str(note["origin"])
        )
