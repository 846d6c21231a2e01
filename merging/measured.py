"""A measurement on the disk: tables, arrays and facts in one sealed folder, written whole or not at all."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from merging import entries
from merging.entries import DamagedError
from merging.errors import StoreError
from merging.runs import THIS_MACHINE, read_table, table_file, write_table

if TYPE_CHECKING:
    import pandas as pd

FACTS = "measured.json"
DIGITS = 7  # significant digits that tables are written with; arrays are written exactly
GONE = "is not there: {}. Measure it again."


class Found(NamedTuple):
    """What a measurement gives: tables by name, what to say beside every picture of them (n, seed, split ...), arrays.

    Arrays are for what is too long for a table, such as features; their names are like those of tables.
    """

    tables: Mapping[str, pd.DataFrame]
    notes: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]] = {}


@dataclass(frozen=True)
class Measured:
    """A stored measurement; ``seconds`` on ``device``, ``notes`` as computed.

    ``run_id`` is the run that it was measured with, which need not be there any more if it is of experts.
    """

    key: str
    run_id: str
    provenance: str
    device: str
    seconds: float
    notes: Mapping[str, Any]
    path: Path
    _schemas: Mapping[str, Mapping[str, str]] = field(repr=False)

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of its tables."""
        return tuple(self._schemas)

    def table(self, name: str) -> pd.DataFrame:
        """One of its tables; raises StoreError if it is gone."""
        try:
            return read_table(self.path / table_file(name), self._schemas[name])
        except (OSError, KeyError) as error:
            raise StoreError(f"The table {name!r} of {self.key} {GONE.format(error)}") from None

    def array(self, name: str) -> NDArray[Any]:
        """One of its arrays; raises StoreError if it is gone."""
        try:
            found: NDArray[Any] = np.load(self.path / _array_file(name), allow_pickle=False)
        except (OSError, ValueError) as error:
            raise StoreError(f"The array {name!r} of {self.key} {GONE.format(error)}") from None
        return found


def write(place: Path, name: str, found: Found, said: Mapping[str, Any], started: float) -> None:
    """Publish a measurement as ``place``/``name``; ``started`` is when it began, on the monotonic clock.

    Raises:
        StoreError: the disk cannot be written to.
    """
    try:
        with entries.written(place, name, lambda there: read(there, THIS_MACHINE) is not None) as folder:
            schemas = {key: write_table(folder, key, _rounded(table)) for key, table in found.tables.items()}
            for key, array in found.arrays.items():
                np.save(folder / _array_file(key), array, allow_pickle=False)
            facts = {**said, "notes": dict(found.notes), "seconds": round(time.monotonic() - started, 2)}
            entries.write_json(folder / FACTS, {**facts, "tables": schemas})
    except OSError as error:
        raise StoreError(f"The measurement cannot be kept: {error.strerror}.") from None


def read(path: Path, provenance: str) -> Measured | None:
    """The measurement in a folder; a damaged one counts as absent."""
    if not path.is_dir() or not entries.is_whole(path):
        return None
    try:
        facts = json.loads(entries.verified(path, entries.read_manifest(path), FACTS).read_bytes())
        return Measured(
            facts["key"], facts["run"], provenance, facts["device"], facts["seconds"], facts["notes"], path,
            facts["tables"],
        )  # fmt: skip
    except (DamagedError, OSError, ValueError, KeyError, TypeError):
        return None


def _rounded(table: pd.DataFrame) -> pd.DataFrame:
    """The table with the digits that mean something, which makes its file half as long."""
    numbers = table.select_dtypes("float").columns
    return table.assign(**{name: [float(f"{value:.{DIGITS}g}") for value in table[name]] for name in numbers})


def _array_file(name: str) -> str:
    return f"{name}.npy"
