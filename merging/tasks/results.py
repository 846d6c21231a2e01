"""Results of tasks: tables, arrays and facts in sealed folders, written whole or not at all.

A store has results of several kinds, each in a folder of its own. It reads those of libraries, too, and never writes to
them. A damaged result counts as absent; an own one is set aside.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from merging.errors import StoreError
from merging.files import atomic, records
from merging.files.atomic import DamagedError
from merging.files.disk import OTHER_STORE, explained
from merging.files.short_digest import SHORT_DIGEST
from merging.files.tables import PACKED, Columns, Table, read_columns, stored_table, unpacked, write_table
from merging.tasks.quarantine import Quarantine

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ResultKind:
    """What results of a kind are called in sentences, the folder of a store that has them, and their file of facts.

    ``again`` says what to do about one that is lost. Tables are listed in the facts under "tables", or there is one of
    the name ``table``, whose columns stand under that name.
    """

    noun: str
    folder: str
    facts: str
    again: str
    table: str = ""


@dataclass(frozen=True)
class Result:
    """A stored result; tables and arrays are read when they are asked for. ``own`` ones are not of a library."""

    kind: ResultKind
    path: Path
    own: bool
    facts: Mapping[str, Any] = field(repr=False)

    @property
    def schemas(self) -> Mapping[str, Mapping[str, str]]:
        """The columns of its tables, with their types."""
        name = self.kind.table
        found: Mapping[str, Mapping[str, str]] = {name: self.facts[name]} if name else self.facts["tables"]
        return found

    def columns(self, name: str) -> Columns:
        """One of its tables, without loading pandas; raises StoreError if it is missing."""
        try:
            return read_columns(self.path / stored_table(self.path, name), self.schemas[name])
        except (OSError, KeyError) as error:
            raise StoreError(f"The table {name!r} of {self._lost(error)}") from None

    def array(self, name: str) -> NDArray[Any]:
        """One of its arrays; raises StoreError if it is missing."""
        try:
            array: NDArray[Any] = np.load(_stored_array(self.path / _array_file(name)), allow_pickle=False)
        except (OSError, ValueError) as error:
            raise StoreError(f"The array {name!r} of {self._lost(error)}") from None
        return array

    def _lost(self, error: Exception) -> str:
        return f"{self.facts.get('key', self.path.name)} is missing: {error}. {self.kind.again}"


class ResultPlace(NamedTuple):
    """Where a result lies: the folder of its kind, and the number of the entry, another one if it is replaced."""

    folder: Path
    number: int


class Results:
    """The results of one kind in the store at ``root``, and below it those beside the runs of libraries."""

    def __init__(self, kind: ResultKind, root: Path, libraries: Sequence[Path], damaged: Quarantine) -> None:
        self.kind, self.own = kind, root / kind.folder
        self.folders = (self.own, *(library.parent / kind.folder for library in libraries))
        self._damaged = damaged

    def find(self, name: str, view: Callable[[Result], T]) -> T | None:
        """What ``view`` makes of a stored result, the own one first; None where none can be read."""
        for folder in self.folders:
            if found := self.read(folder / name, view):
                return found
        return None

    def read(self, path: Path, view: Callable[[Result], T]) -> T | None:
        """What ``view`` makes of the result in a folder; None if it is missing, damaged, or not of this kind."""
        if not path.is_dir():
            return None
        try:
            atomic.check_whole(path)
            facts = json.loads((path / self.kind.facts).read_bytes())
            return view(Result(self.kind, path, path.parent == self.own, facts))
        except DamagedError as damage:
            self._damaged.take(path, self.kind.noun, damage, move=path.parent == self.own)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return None

    def listed(self) -> dict[str, ResultPlace]:
        """{name: where it lies} of every result, from one listing of each folder; own ones go first."""
        there: dict[str, ResultPlace] = {}
        for folder in self.folders:
            with contextlib.suppress(OSError), os.scandir(folder) as entries:
                for entry in entries:
                    if SHORT_DIGEST.fullmatch(entry.name):
                        there.setdefault(entry.name, ResultPlace(folder, entry.inode()))
        return there

    def write(
        self,
        name: str,
        facts: Mapping[str, Any],
        tables: Mapping[str, Table],
        arrays: Mapping[str, NDArray[Any]] | None = None,
        *,
        what: str = "",
        replace: bool = False,
        root: Path | None = None,
    ) -> None:
        """Publish an own result, unless a whole one is there; with ``replace`` it takes the place of that.

        ``root`` is the folder for it, by default that of its kind. ``what`` it is begins the message of an error. A key
        for tables that is among the facts keeps its place there.

        Raises:
            StoreError: the disk cannot be written to.
        """

        def stays(old: Path) -> bool:
            return not replace and self.read(old, lambda found: found) is not None

        with atomic.written(root or self.own, name, stays, what or f"The {self.kind.noun}") as folder:
            schemas = {key: write_table(folder, key, table) for key, table in tables.items()}
            for key, array in (arrays or {}).items():
                np.save(folder / _array_file(key), array, allow_pickle=False)
            more = schemas if self.kind.table else {"tables": schemas}
            records.write_json(folder / self.kind.facts, {**facts, **more})

    @contextmanager
    def shown_so_far(self) -> Iterator[Path]:
        """A folder for results so far, which other processes may read, for as long as the block runs.

        It is temporary, and swept up if this process dies; ``find_so_far`` reads what lies there.
        """
        with explained(f"The {self.kind.noun}", OTHER_STORE):
            folder = atomic.make_temporary(self.own)
        try:
            yield folder
        finally:
            atomic.drop(folder)

    def find_so_far(self, name: str, view: Callable[[Result], T]) -> T | None:
        """What ``view`` makes of the result so far of a task that is computed here; None if it has shown none."""
        for path in self.own.glob(f"*/{name}"):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError, StoreError):  # it is being replaced
                return view(Result(self.kind, path, True, json.loads((path / self.kind.facts).read_bytes())))
        return None

    def sweep(self) -> None:
        """Remove the temporary folders that dead writers left behind."""
        atomic.sweep(self.own)


def _array_file(name: str) -> str:
    return f"{name}.npy"


def _stored_array(path: Path) -> Path | io.BytesIO:
    """An array's file, or its bytes if only a packed one is there, as in a library."""
    packed = path.with_name(path.name + PACKED)
    return io.BytesIO(unpacked(packed)) if packed.exists() and not path.exists() else path
