"""Results of tasks: tables, arrays and facts in sealed folders, written whole or not at all.

A store has results of several kinds, each in a folder of its own. It reads those of libraries, too, and never writes to
them. A damaged result counts as absent; an own one is set aside.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from merging.base.errors import StoreError
from merging.base.files import atomic, records
from merging.base.files.atomic import DamagedError, Manifest, read_manifest, verify_file
from merging.base.files.disk import OTHER_STORE, explain_os_errors
from merging.base.files.short_digest import SHORT_DIGEST
from merging.base.files.tables import (
    PACKED,
    SCORES,
    Columns,
    Table,
    read_columns,
    read_unpacked,
    stored_table,
    write_table,
)
from merging.base.text import did_you_mean
from merging.tasks.quarantine import Quarantine

T = TypeVar("T")
ATTEMPTS, PAUSE = 10, 0.01  # attempts to read a damaged file, and seconds between them
NOT_READ = (OSError, ValueError, KeyError, TypeError, AttributeError)  # what reading facts of another program raises


@dataclass(frozen=True, slots=True)
class ResultKind:
    """What results of a kind are called in sentences, the folder of a store that has them, and their file of facts.

    ``again`` says what to do about one that is lost. Tables are listed in the facts under "tables", or there is one of
    the name ``table``, whose columns stand under that name. The hash of a file is compared when the result is read; in
    results with ``large`` files, when the file is first used.
    """

    noun: str
    folder: str
    facts: str
    again: str
    table: str = ""
    large: bool = False


@dataclass(frozen=True)
class Result:
    """A stored result; its files are read when they are asked for. ``own`` ones are not of a library.

    ``damaged`` is called for damage that is found later. The folder may be replaced by a newer copy at any moment, so a
    failed read is repeated. Whatever reads a file raises StoreError if that is damaged or was deleted.
    """

    kind: ResultKind
    path: Path
    own: bool
    facts: Mapping[str, Any] = field(repr=False)
    manifest: Manifest = field(repr=False)
    damaged: Callable[[DamagedError], None] = field(repr=False, compare=False)

    @property
    def schemas(self) -> Mapping[str, Mapping[str, str]]:
        """The columns of its tables, with their types."""
        name = self.kind.table
        found: Mapping[str, Mapping[str, str]] = {name: self.facts[name]} if name else self.facts["tables"]
        return found

    def columns(self, name: str) -> Columns:
        """One of its tables, without loading pandas; raises StoreError if there is none of that name, too."""
        if name not in self.schemas:
            known = [each for each in self.schemas if each != SCORES]
            hint = did_you_mean(name, known)
            raise StoreError(
                f"{self._sentence_name} has no table {name!r}.{hint} It has: {', '.join(known) or 'none'}."
            )
        return self.read_checked(stored_table(self.manifest, name), lambda path: read_columns(path, self.schemas[name]))

    def array(self, name: str) -> NDArray[Any]:
        """One of its arrays, which may lie packed, as in a library; raises StoreError if there is none, too."""
        plain, packed = f"{name}.npy", f"{name}.npy{PACKED}"
        if plain in self.manifest:
            return self.read_checked(plain, lambda path: np.load(path, allow_pickle=False))
        if packed in self.manifest:
            return self.read_checked(packed, lambda path: np.load(io.BytesIO(read_unpacked(path)), allow_pickle=False))
        raise StoreError(f"{self._sentence_name} has no array {name!r}.")

    def file(self, name: str) -> Path:
        """One of its files, after its hash was checked."""
        return self.read_checked(name, lambda path: path)

    def read_checked(self, name: str, read: Callable[[Path], T]) -> T:
        """The result of ``read`` on a file whose hash was checked."""
        manifest, damage = self.manifest, DamagedError("it cannot be read")
        for attempt in range(ATTEMPTS):
            try:
                return read(verify_file(self.path, manifest, name))
            except NOT_READ as error:
                damage = DamagedError(f"{name} cannot be read: {getattr(error, 'strerror', None) or error!r}")
            except DamagedError as error:
                damage = error
            time.sleep(attempt * PAUSE)
            with contextlib.suppress(DamagedError):
                manifest = read_manifest(self.path)
        if not self.path.exists():
            raise StoreError(f"{self._sentence_name} was deleted meanwhile. {self.kind.again}")
        self.damaged(damage)
        raise StoreError(f"{self._sentence_name} is damaged ({damage}) and counts as absent. {self.kind.again}")

    @property
    def _sentence_name(self) -> str:
        return f"{self.kind.noun.capitalize()} {self.path.name}"


class ResultLocation(NamedTuple):
    """Where a result lies: the folder of its kind, and the number of the entry, another one if it is replaced."""

    folder: Path
    number: int


class Results(Generic[T]):
    """The results of one kind in the store at ``root``, and those in the folders of ``libraries``, which come after.

    ``view`` is what a result is read as; None, or KeyError and the like, where it is not of this kind.
    """

    def __init__(
        self, kind: ResultKind, view: Callable[[Result], T | None], root: Path, libraries: Sequence[Path],
        damaged: Quarantine,
    ) -> None:  # fmt: skip
        self.kind, self.own = kind, root / kind.folder
        self.folders = (self.own, *libraries)
        self._view, self._root, self._damaged = view, root, damaged

    def find(self, name: str) -> T | None:
        """The stored result, the own one first; None where none can be read."""
        for folder in self.folders:
            if found := self.read(folder / name):
                return found
        return None

    def read(self, path: Path) -> T | None:
        """The result in a folder; None if it is missing, damaged, or not of this kind."""
        if not path.is_dir():
            return None
        own = path.is_relative_to(self._root)
        move = own and path.parent not in self.folders[1:]  # a library may lie in a store, and is never written to

        def set_aside(damage: DamagedError) -> None:
            self._damaged.check_and_move(path, self.kind.noun, damage, move=move)

        # Another process may be replacing the folder at this moment, so only two failed reads count as damage.
        for last in (False, True):
            try:
                manifest = read_manifest(path)
                for name in (self.kind.facts,) if self.kind.large else manifest:
                    verify_file(path, manifest, name)
                facts = json.loads((path / self.kind.facts).read_bytes())
                result = Result(self.kind, path, own, facts, manifest, set_aside)
                return self._view(result) if isinstance(result.schemas, dict) else None
            except DamagedError as damage:
                reason = damage
            except StoreError:  # it was deleted meanwhile
                return None
            except NOT_READ as error:
                reason = DamagedError(f"{self.kind.facts} cannot be read: {error!r}")
            if last and path.is_dir():
                set_aside(reason)
        return None

    def list_locations(self) -> dict[str, ResultLocation]:
        """{name: where it lies} of every result, from one listing of each folder; own ones go first."""
        there: dict[str, ResultLocation] = {}
        for folder in self.folders:
            with contextlib.suppress(OSError), os.scandir(folder) as entries:
                for entry in entries:
                    if SHORT_DIGEST.fullmatch(entry.name):
                        there.setdefault(entry.name, ResultLocation(folder, entry.inode()))
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
            return not replace and self.read(old) is not None

        with atomic.write_folder(root or self.own, name, stays, what or f"The {self.kind.noun}") as folder:
            schemas = {key: write_table(folder, key, table) for key, table in tables.items()}
            for key, array in (arrays or {}).items():
                np.save(folder / f"{key}.npy", array, allow_pickle=False)
            more = schemas if self.kind.table else {"tables": schemas}
            records.write_json(folder / self.kind.facts, {**facts, **more})

    @contextmanager
    def publish_partial(self) -> Iterator[Path]:
        """A folder for results so far, which other processes may read, for as long as the block runs.

        It is temporary, and swept up if this process dies; ``find_so_far`` reads what lies there.
        """
        with explain_os_errors(f"The {self.kind.noun}", OTHER_STORE):
            folder = atomic.make_temporary(self.own)
        try:
            yield folder
        finally:
            atomic.remove_temporary(folder)

    def find_partial(self, name: str) -> T | None:
        """The result so far of a task that is computed here; None if it has shown none."""
        for path in self.own.glob(f"*/{name}"):
            with contextlib.suppress(*NOT_READ, StoreError, DamagedError):  # it is being replaced
                facts, manifest = json.loads((path / self.kind.facts).read_bytes()), read_manifest(path)
                return self._view(Result(self.kind, path, True, facts, manifest, lambda damage: None))
        return None

    def sweep(self) -> None:
        """Remove the temporary folders that dead writers left behind."""
        atomic.sweep(self.own)
