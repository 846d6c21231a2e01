"""A stored measurement: tables, arrays and facts in one sealed folder, written whole or not at all."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from merging.analysis.registry import Measurement, kind
from merging.analysis.subject import FOLDER, MeasurementResult, Of, own_folder
from merging.checkpoints.references import PRETRAINED, expert_key
from merging.errors import StoreError
from merging.files import atomic, records
from merging.files.atomic import DamagedError
from merging.files.disk import OTHER_STORE, explained
from merging.files.short_digest import short_digest
from merging.files.tables import PACKED, read_table, stored_table, table_file, unpacked, write_table
from merging.runs.run import PRECOMPUTED, THIS_MACHINE, Run
from merging.runs.store import Store

if TYPE_CHECKING:
    import pandas as pd

    from merging.benchmarks.benchmark import Benchmark

FACTS = "measured.json"
DIGITS = 7  # significant digits that tables are written with; arrays are written exactly
Shows = Callable[[MeasurementResult], None]
GONE = "is missing: {}. Measure it again."
MEMORY = "memory"  # the note on a device that ran out of memory


@dataclass(frozen=True)
class Measured:
    """A stored measurement; ``seconds`` on ``device`` (None where it is precomputed), ``notes`` as computed.

    ``run_id`` is the run that it was measured with, which may have been deleted if it is of experts.
    """

    key: str
    run_id: str
    provenance: str
    device: str
    seconds: float | None
    notes: Mapping[str, Any]
    path: Path
    _schemas: Mapping[str, Mapping[str, str]] = field(repr=False)

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of its tables."""
        return tuple(self._schemas)

    def table(self, name: str) -> pd.DataFrame:
        """One of its tables; raises StoreError if it is missing."""
        try:
            return read_table(self.path / stored_table(self.path, name), self._schemas[name])
        except (OSError, KeyError) as error:
            raise StoreError(f"The table {name!r} of {self.key} {GONE.format(error)}") from None

    def array(self, name: str) -> NDArray[Any]:
        """One of its arrays; raises StoreError if it is missing."""
        try:
            array: NDArray[Any] = np.load(_stored_array(self.path / _array_file(name)), allow_pickle=False)
        except (OSError, ValueError) as error:
            raise StoreError(f"The array {name!r} of {self.key} {GONE.format(error)}") from None
        return array


def write(
    store: Store,
    name: str,
    result: MeasurementResult,
    about: Mapping[str, Any],
    started: float,
    *,
    replace: bool = False,
    root: Path | None = None,
) -> None:
    """Publish an own measurement under a name; ``started`` is when it began, on the monotonic clock.

    With ``replace`` it takes the place of an earlier one. ``root`` is the folder for it, by default that of all.

    Raises:
        StoreError: the disk cannot be written to.
    """

    def stays(old: Path) -> bool:
        return not replace and read(old, store) is not None

    with atomic.written(root or own_folder(store), name, stays, "The measurement") as folder:
        schemas = {key: write_table(folder, key, _rounded(table)) for key, table in result.tables.items()}
        for key, array in result.arrays.items():
            np.save(folder / _array_file(key), array, allow_pickle=False)
        facts = {**about, "notes": dict(result.notes), "seconds": round(time.monotonic() - started, 2)}
        records.write_json(folder / FACTS, {**facts, "tables": schemas})


def read(path: Path, store: Store) -> Measured | None:
    """The measurement in a folder; a damaged one counts as absent, and is set aside if it is an own one."""
    own = path.parent == own_folder(store)
    if not path.is_dir():
        return None
    try:
        atomic.check_whole(path)
        facts = json.loads((path / FACTS).read_bytes())
        return Measured(
            facts["key"], facts["run"], THIS_MACHINE if own else PRECOMPUTED, facts["device"], facts["seconds"],
            facts["notes"], path, facts["tables"],
        )  # fmt: skip
    except DamagedError as damage:
        store.damaged.take(path, "measurement", damage, move=own)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return None


def subject_of(place: Path) -> tuple[str, str] | None:
    """The key and the run of a measurement that was set aside, which may be wrong; None if they cannot be read."""
    try:
        facts = json.loads((place / FACTS).read_bytes())
        return kind(str(facts["key"])).key, str(facts["run"])
    except (OSError, ValueError, KeyError, TypeError, StoreError):
        return None


@contextmanager
def shown_so_far(store: Store, name: str, about: Mapping[str, Any], started: float) -> Iterator[Shows]:
    """A function that shows a measurement's results so far to other processes, for as long as the block runs.

    They lie in a temporary folder, which is swept up if this process dies; ``find_so_far`` reads them.
    """
    with explained("The measurement", OTHER_STORE):
        place = atomic.make_temporary(own_folder(store))

    def show(result: MeasurementResult) -> None:
        write(store, name, result, about, started, root=place, replace=True)

    try:
        yield show
    finally:
        atomic.drop(place)


def find_so_far(key: str, store: Store, benchmark: Benchmark, run_id: str = "") -> MeasurementResult | None:
    """The results so far of a measurement that is running here, without arrays; None if it has shown none."""
    name = entry_name(kind(key), store, benchmark, run_id)
    for place in own_folder(store).glob(f"*/{name}"):
        try:
            facts = json.loads((place / FACTS).read_bytes())
            tables = {table: read_table(place / table_file(table), schema) for table, schema in facts["tables"].items()}
            return MeasurementResult(tables, facts["notes"])
        except (OSError, ValueError, KeyError, TypeError):  # it is being replaced, or was just finished
            continue
    return None


def _rounded(table: pd.DataFrame) -> pd.DataFrame:
    """The table rounded to ``DIGITS``, which halves its file."""
    numbers = table.select_dtypes("float").columns
    return table.assign(**{name: [float(f"{value:.{DIGITS}g}") for value in table[name]] for name in numbers})


def _array_file(name: str) -> str:
    return f"{name}.npy"


def _stored_array(place: Path) -> Path | io.BytesIO:
    """An array's file, or its bytes if only a packed one is there, as in a library."""
    packed = place.with_name(place.name + PACKED)
    return io.BytesIO(unpacked(packed)) if packed.exists() and not place.exists() else place


def find(key: str, store: Store, benchmark: Benchmark, run_id: str = "") -> Measured | None:
    """The stored measurement, an own one first, or None."""
    if (name := entry_name(kind(key), store, benchmark, run_id)) is None:
        return None
    for folder in (own_folder(store), *(library.parent / FOLDER for library in store.libraries)):
        if measured := read(folder / name, store):
            return measured
    return None


def share_measurements(run: Run, other: Run) -> bool:
    """Whether two runs share what is measured of their experts: they merged the same checkpoints in the same order."""
    return merged_from(run) == merged_from(other)


def merged_from(run: Run) -> list[tuple[str, str]]:
    """Name and digest of the pretrained model and of each expert, in order."""
    names = [PRETRAINED, *(expert_key(name) for name in run.experts)]
    return [(name, run.inputs.get(name, "")) for name in names]


def entry_name(measurement: Measurement, store: Store, benchmark: Benchmark, run_id: str) -> str | None:
    """The name of an entry; None for experts of a run that is missing, or that merged nothing."""
    of: object = run_id
    if measurement.of == Of.EXPERTS:
        run = store.find(run_id)
        if run is None or run.kind != "merge":
            return None
        of = merged_from(run)
    depends = json.dumps([measurement.key, measurement.version, of, benchmark.digest])
    return short_digest(depends)
