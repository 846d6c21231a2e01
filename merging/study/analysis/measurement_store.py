"""Stored measurements: results with notes for the pictures of their tables."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from merging.base.errors import StoreError
from merging.base.files.short_digest import short_digest
from merging.models.model_references import PRETRAINED, expert_key
from merging.study.analysis.measurement_registry import Measurement, find_measurement
from merging.study.analysis.measurement_subject import FOLDER, MeasurementResult, SubjectKind
from merging.study.runs.run import Run, name_provenance, split_run_ids
from merging.study.runs.run_store import Store
from merging.tasks.results import Result, ResultKind, Results

if TYPE_CHECKING:
    import pandas as pd

    from merging.images.benchmarks.benchmark import Benchmark

FACTS = "measured.json"
KIND = ResultKind("measurement", FOLDER, FACTS, "Measure it again.")
MIN_TIME_SHARE = 0.25  # the smallest expected time, relative to the estimate for the kind of measurement
SIGNIFICANT_DIGITS = 7  # significant digits of the numbers in tables; arrays are written exactly
ShowPartial = Callable[[MeasurementResult], None]
MEMORY_NOTE = "memory"  # the note on a device that ran out of memory


@dataclass(frozen=True)
class StoredMeasurement:
    """A stored measurement; it took ``seconds`` on ``device`` (None if it is precomputed).

    ``run_id`` is the run that was measured, or several ids joined. A measurement of a run's experts outlives the run.
    """

    key: str
    run_id: str
    provenance: str
    device: str
    seconds: float | None
    notes: Mapping[str, Any]
    result: Result

    @property
    def path(self) -> Path:
        """The folder of the measurement."""
        return self.result.path

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables."""
        return tuple(self.result.schemas)

    def table(self, name: str) -> pd.DataFrame:
        """The table of a name; raises StoreError if it is missing."""
        return self.result.columns(name).frame()

    def array(self, name: str) -> NDArray[Any]:
        """The array (*S) of a name; raises StoreError if it is missing."""
        return self.result.array(name)


def measurement_results(store: Store) -> Results[StoredMeasurement]:
    """The stored measurements of a store and of its libraries."""
    return store.results(KIND, _read_measurement)


def _read_measurement(result: Result) -> StoredMeasurement:
    facts = result.facts
    provenance = name_provenance(result)
    return StoredMeasurement(
        facts["key"], facts["run"], provenance, facts["device"], facts["seconds"], facts["notes"], result
    )  # fmt: skip


def write_measurement(
    store: Store,
    name: str,
    result: MeasurementResult,
    base_facts: Mapping[str, Any],
    started: float,
    *,
    replace: bool = False,
    root: Path | None = None,
) -> None:
    """Write a measurement of this store under a name; ``started`` is its start on the monotonic clock (seconds).

    With ``replace`` it replaces an earlier one. ``root`` is the folder that holds it, by default that of all
    measurements.

    Raises:
        StoreError: the disk cannot be written to.
    """
    facts = {**base_facts, "notes": dict(result.notes), "seconds": round(time.monotonic() - started, 2)}
    tables = {key: _round_table(table) for key, table in result.tables.items()}
    measurement_results(store).write(name, facts, tables, result.arrays, replace=replace, root=root)


def read_damaged_subject(path: Path) -> tuple[str, str] | None:
    """The key and the run id of a quarantined measurement, which may be wrong; None if they cannot be read."""
    try:
        facts = json.loads((path / FACTS).read_bytes())
        return find_measurement(str(facts["key"])).key, str(facts["run"])
    except (OSError, ValueError, KeyError, TypeError, StoreError):
        return None


@contextmanager
def publish_partial(store: Store, name: str, base_facts: Mapping[str, Any], started: float) -> Iterator[ShowPartial]:
    """A function that shows a measurement's partial results to other processes; they vanish when the block ends."""
    with measurement_results(store).publish_partial() as folder:

        def show(result: MeasurementResult) -> None:
            write_measurement(store, name, result, base_facts, started, root=folder, replace=True)

        yield show


def find_partial(key: str, store: Store, benchmark: Benchmark, run_id: str = "") -> MeasurementResult | None:
    """The partial results, without arrays, of a measurement that runs on this machine; None if it has shown none."""
    name = entry_name(find_measurement(key), store, benchmark, run_id)
    partial_result = None if name is None else measurement_results(store).find_partial(name)
    if partial_result is not None:
        with contextlib.suppress(StoreError):  # the partial results were replaced, or the measurement has ended
            return MeasurementResult(
                {table_name: partial_result.table(table_name) for table_name in partial_result.tables},
                partial_result.notes,
            )
    return None


def _round_table(table: pd.DataFrame) -> pd.DataFrame:
    """The table with numbers rounded to ``SIGNIFICANT_DIGITS``, which halves its file."""
    numbers = table.select_dtypes("float").columns
    return table.assign(
        **{name: [float(f"{value:.{SIGNIFICANT_DIGITS}g}") for value in table[name]] for name in numbers}
    )


def find_measurement_result(key: str, store: Store, benchmark: Benchmark, run_id: str = "") -> StoredMeasurement | None:
    """The stored measurement, this machine's own before a precomputed one; None if there is none."""
    name = entry_name(find_measurement(key), store, benchmark, run_id)
    return None if name is None else measurement_results(store).find(name)


def have_same_measurement(measurement: Measurement, run: Run, other_run: Run) -> bool:
    """Whether two runs share a measurement of their experts: the same checkpoints, in order unless it grows."""
    return _list_measured_inputs(measurement, run) == _list_measured_inputs(measurement, other_run)


def _list_measured_inputs(measurement: Measurement, run: Run) -> list[tuple[str, str]]:
    """``list_merge_inputs``; sorted for a measurement of all stored runs, which merge them in any order."""
    inputs = list_merge_inputs(run)
    return sorted(inputs) if measurement.grows else inputs


def list_merge_inputs(run: Run) -> list[tuple[str, str]]:
    """Name and digest of the pretrained model and of each expert, in order."""
    names = [PRETRAINED, *(expert_key(name) for name in run.experts)]
    return [(name, run.inputs.get(name, "")) for name in names]


def entry_name(measurement: Measurement, store: Store, benchmark: Benchmark, run_id: str) -> str | None:
    """The name of the entry of a measurement; None if it is of experts and the run is missing or merged nothing."""
    measured_subject: object = run_id
    if measurement.subject == SubjectKind.EXPERTS:
        run = store.find(run_id)
        if run is None or run.kind != "merge":
            return None
        measured_subject = _list_measured_inputs(measurement, run)
    elif measurement.subject == SubjectKind.RUNS:
        measured_subject = sorted(split_run_ids(run_id))
    return short_digest(json.dumps([measurement.key, measurement.version, measured_subject, benchmark.digest]))


def expect_seconds(key: str, root: Path) -> float:
    """Seconds of a measurement on this idle machine: the fastest measurement of its kind in the store at ``root``.

    Without a stored measurement, return the estimate of its kind. The result is at least ``MIN_TIME_SHARE`` of that
    estimate, since the stored one may be of a smaller benchmark. The latest time would be wrong: taken while many
    sessions run, it would make the queue refuse a job that it accepted before.
    """
    times = []
    for path in (root / FOLDER).glob(f"*/{FACTS}"):
        try:
            facts = json.loads(path.read_bytes())
            times += [float(facts["seconds"])] if facts["key"] == key else []
        except (OSError, ValueError, KeyError, TypeError):  # being replaced, damaged, or without a time
            continue
    estimate = find_measurement(key).seconds
    return max(min(times, default=estimate), MIN_TIME_SHARE * estimate)
