"""Results of tasks: tables, arrays and facts in sealed folders, written whole or not at all.

A sealed folder has a manifest with the size and hash of every file. A store has results of several kinds, each kind in
a folder of its own. It also reads results of libraries, other folders of results, which it never writes to. A damaged
result counts as absent; if it is in the store itself, it is set aside.
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
from merging.base.files.disk import STORE_REMEDY, explain_os_errors
from merging.base.files.short_digest import SHORT_DIGEST
from merging.base.files.tables import (
    PACKED_SUFFIX,
    SCORES,
    Columns,
    Table,
    find_table_file,
    read_columns,
    read_unpacked,
    write_table,
)
from merging.base.text import did_you_mean
from merging.tasks.pack_folders import pack_name
from merging.tasks.quarantine import Quarantine

T = TypeVar("T")
READ_ATTEMPTS, RETRY_SECONDS = 10, 0.01  # attempts to read a damaged file, and the growing pause between them
READ_ERRORS = (OSError, ValueError, KeyError, TypeError, AttributeError)  # exceptions for facts of an unknown format


@dataclass(frozen=True, slots=True)
class ResultKind:
    """A kind of results: its ``noun`` in sentences, its folder in a store, and the name of its file of facts.

    ``recovery_hint`` is a sentence that tells the user how to recover a lost result. The schemas of tables are in the
    facts under "tables"; if there is only the table ``table``, its schema is in the facts under that name. The hash of
    a file is compared when the result is read; for kinds with ``large`` files, when the file is first used.
    """

    noun: str
    folder: str
    facts_file: str
    recovery_hint: str
    table: str = ""
    large: bool = False  # whether files are so large that each is checked only when it is first used


@dataclass(frozen=True)
class Result:
    """A stored result, whose files are read on demand; ``is_own`` is False if it is in a library.

    ``damaged`` is called for damage that is found later. The folder may be replaced by a newer copy at any moment, so a
    failed read is repeated. Every method that reads a file raises StoreError if the file is damaged or was deleted.
    """

    kind: ResultKind
    path: Path
    is_own: bool
    facts: Mapping[str, Any] = field(repr=False)
    manifest: Manifest = field(repr=False)
    damaged: Callable[[DamagedError], None] = field(repr=False, compare=False)

    @property
    def pack(self) -> str:
        """The name of the pack that it is in; empty for other results."""
        return pack_name(self.path)

    @property
    def schemas(self) -> Mapping[str, Mapping[str, str]]:
        """The schemas of its tables: {table: {column: type}}."""
        name = self.kind.table
        schemas: Mapping[str, Mapping[str, str]] = {name: self.facts[name]} if name else self.facts["tables"]
        return schemas

    def columns(self, name: str) -> Columns:
        """One of its tables, without loading pandas. Raises StoreError also if it has no table of that name."""
        if name not in self.schemas:
            # Scores are read by ``Run.scores``, not by their table's name.
            known = [table for table in self.schemas if table != SCORES]
            hint = did_you_mean(name, known)
            raise StoreError(
                f"{self._sentence_name} has no table {name!r}.{hint} It has: {', '.join(known) or 'none'}."
            )
        return self.read_checked(
            find_table_file(self.manifest, name), lambda path: read_columns(path, self.schemas[name])
        )

    def array(self, name: str) -> NDArray[Any]:
        """One of its arrays (*S), of any shape, plain or packed (gzip). Raises StoreError, too, if it has no such."""
        plain_file, packed_file = f"{name}.npy", f"{name}.npy{PACKED_SUFFIX}"
        if plain_file in self.manifest:
            return self.read_checked(plain_file, lambda path: np.load(path, allow_pickle=False))
        if packed_file in self.manifest:
            return self.read_checked(
                packed_file, lambda path: np.load(io.BytesIO(read_unpacked(path)), allow_pickle=False)
            )
        raise StoreError(f"{self._sentence_name} has no array {name!r}.")

    def file(self, name: str) -> Path:
        """The path of one of its files, after checking its hash."""
        return self.read_checked(name, lambda path: path)

    def read_checked(self, name: str, read: Callable[[Path], T]) -> T:
        """The return value of ``read`` for the path of a file, after checking the file's hash."""
        manifest, damage = self.manifest, DamagedError("it cannot be read")
        for attempt in range(READ_ATTEMPTS):
            try:
                return read(verify_file(self.path, manifest, name))
            except READ_ERRORS as error:
                damage = DamagedError(f"{name} cannot be read: {getattr(error, 'strerror', None) or error!r}")
            except DamagedError as error:
                damage = error
            time.sleep(attempt * RETRY_SECONDS)
            with contextlib.suppress(DamagedError):
                manifest = read_manifest(self.path)
        if not self.path.exists():
            raise StoreError(f"{self._sentence_name} was deleted meanwhile. {self.kind.recovery_hint}")
        self.damaged(damage)
        raise StoreError(f"{self._sentence_name} is damaged ({damage}) and counts as absent. {self.kind.recovery_hint}")

    @property
    def _sentence_name(self) -> str:
        return f"{self.kind.noun.capitalize()} {self.path.name}"


def _view_itself(result: Result) -> Result:
    return result


class ResultLocation(NamedTuple):
    """The location of a result: the folder of its kind, and its inode number, which changes if it is replaced."""

    folder: Path
    number: int


class Results(Generic[T]):
    """The results of one kind in the store at ``root``, then those in the folders of ``libraries``.

    ``view`` converts a ``Result``. It returns None, or raises KeyError or similar, if the result is not of this kind.
    """

    def __init__(
        self, kind: ResultKind, view: Callable[[Result], T | None], root: Path, libraries: Sequence[Path],
        damaged: Quarantine,
    ) -> None:  # fmt: skip
        self.kind, self.own_folder = kind, root / kind.folder
        self.folders = (self.own_folder, *libraries)
        self._view, self._root, self._damaged = view, root, damaged

    def find(self, name: str) -> T | None:
        """The stored result with a name, from the store itself or else from a library; None if none can be read."""
        for folder in self.folders:
            if result := self.read(folder / name):
                return result
        return None

    def find_result(self, name: str) -> Result | None:
        """The stored result that ``find`` would convert, as it is stored; None if none can be read."""
        return Results(self.kind, _view_itself, self._root, self.folders[1:], self._damaged).find(name)

    def read(self, path: Path) -> T | None:
        """The result in a folder; None if it is missing, damaged, or not of this kind."""
        if not path.is_dir():
            return None
        is_own = path.is_relative_to(self._root) and not pack_name(path)
        move = (
            is_own and path.parent not in self.folders[1:]
        )  # a library may be inside a store, and is never written to

        def set_aside(damage: DamagedError) -> None:
            self._damaged.check_and_move(path, self.kind.noun, damage, move=move)

        # Another process may be replacing the folder at this moment, so only two failed reads count as damage.
        for is_last_attempt in (False, True):
            try:
                manifest = read_manifest(path)
                for name in (self.kind.facts_file,) if self.kind.large else manifest:
                    verify_file(path, manifest, name)
                facts = json.loads((path / self.kind.facts_file).read_bytes())
                result = Result(self.kind, path, is_own, facts, manifest, set_aside)
                return self._view(result) if isinstance(result.schemas, dict) else None
            except DamagedError as damage:
                reason = damage
            except StoreError:  # the result was deleted meanwhile
                return None
            except READ_ERRORS as error:
                reason = DamagedError(f"{self.kind.facts_file} cannot be read: {error!r}")
            if is_last_attempt and path.is_dir():
                set_aside(reason)
        return None

    def list_locations(self) -> dict[str, ResultLocation]:
        """{name: location} of every result, from one listing of each folder; own results precede those of libraries."""
        locations: dict[str, ResultLocation] = {}
        for folder in self.folders:
            with contextlib.suppress(OSError), os.scandir(folder) as entries:
                for entry in entries:
                    if SHORT_DIGEST.fullmatch(entry.name):
                        locations.setdefault(entry.name, ResultLocation(folder, entry.inode()))
        return locations

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
        """Publish a result in the store, unless a whole one exists; with ``replace``, replace that one.

        ``arrays`` (*S) are of any shape. ``root`` is the folder to write to, by default that of the kind. The message
        of an error begins with ``what``. ``facts`` may have the key under which the tables' schemas are stored: the
        schemas then take its position in the file.

        Raises:
            StoreError: the disk cannot be written to.
        """

        def is_complete(existing: Path) -> bool:
            return not replace and self.read(existing) is not None

        with atomic.write_folder(root or self.own_folder, name, is_complete, what or f"The {self.kind.noun}") as folder:
            schemas = {key: write_table(folder, key, table) for key, table in tables.items()}
            for key, array in (arrays or {}).items():
                np.save(folder / f"{key}.npy", array, allow_pickle=False)
            table_facts = schemas if self.kind.table else {"tables": schemas}
            records.write_json(folder / self.kind.facts_file, {**facts, **table_facts})

    @contextmanager
    def publish_partial(self) -> Iterator[Path]:
        """A temporary folder for partial results, which other processes can read while the block runs.

        ``find_partial`` reads them. ``sweep`` removes the folder if this process dies.
        """
        with explain_os_errors(f"The {self.kind.noun}", STORE_REMEDY):
            folder = atomic.make_temporary(self.own_folder)
        try:
            yield folder
        finally:
            atomic.remove_temporary(folder)

    def find_partial(self, name: str) -> T | None:
        """The partial result of a task that is being computed; None if it has published none."""
        for path in self.own_folder.glob(f"*/{name}"):  # in the temporary folders of ``publish_partial``
            with contextlib.suppress(*READ_ERRORS, StoreError, DamagedError):  # the result is being replaced
                facts, manifest = json.loads((path / self.kind.facts_file).read_bytes()), read_manifest(path)
                return self._view(Result(self.kind, path, True, facts, manifest, lambda damage: None))
        return None

    def sweep(self) -> None:
        """Remove the temporary folders that dead writers left behind."""
        atomic.remove_leftovers(self.own_folder)
