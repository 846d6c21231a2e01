"""Computes several measurements, in this process or on workers that see the store.

If a measurement consists of trials, workers compute the trials; any other measurement is computed whole by one worker.
Timed measurements are computed in this process, after the workers have finished all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import NamedTuple

from merging.base.errors import MergingError, StoreError
from merging.images.benchmarks.benchmark import Benchmark
from merging.models.formats.files_on_workers import digest_for_request
from merging.study.analysis.measurement_registry import find_measurement
from merging.study.analysis.measurement_store import StoredMeasurement, measurement_results
from merging.study.measure import measure, require_entry_name
from merging.study.runs.estimate import estimate_run
from merging.study.runs.opened_recipe import open_inputs
from merging.study.runs.run_store import Store
from merging.study.runs.worker_requests import store_to_plain
from merging.tasks.context import QUIET, Context
from merging.tasks.kinds import MEASURE, Plain
from merging.tasks.workers.fan_out import WorkerTask
from merging.tasks.workers.pools import open_workers
from merging.tasks.workers.task_map import TaskMap
from merging.tasks.workers.workers import Workers

STEPS = 1000  # steps of progress per second


class WantedMeasurement(NamedTuple):
    """A kind of measurement, and the id of the run to measure; empty for the benchmark."""

    key: str
    run_id: str = ""


def measure_several(
    wanted: Sequence[WantedMeasurement], store: Store, benchmark: Benchmark, *, context: Context = QUIET
) -> list[StoredMeasurement | MergingError]:
    """The stored measurements, in the order of ``wanted``; a measurement that fails has its error instead.

    Workers of the context compute missing measurements if they see the store; otherwise this process does.

    Raises:
        StoreError: the disk cannot be written to. Cancelled, Paused: the user did; finished measurements are stored.
    """
    with open_workers(context) as workers:
        several = SeveralMeasurements(list(wanted), store, benchmark, replace(context, workers=workers or ""))
        return several.measure_all(workers)


@dataclass
class SeveralMeasurements:
    """Measurements to compute, and in which context; ``_results`` has each one's result or error."""

    wanted: Sequence[WantedMeasurement]
    store: Store
    benchmark: Benchmark
    context: Context
    _results: dict[WantedMeasurement, StoredMeasurement | MergingError] = field(default_factory=dict)

    def measure_all(self, workers: Workers | None) -> list[StoredMeasurement | MergingError]:
        """The result or error of each: first what workers compute whole, then what has trials, last what is timed."""
        whole = [
            one
            for one in self.distinct
            if workers is not None and not find_measurement(one.key).trial and not find_measurement(one.key).is_timed
        ]
        others = sorted(
            (one for one in self.distinct if one not in whole), key=lambda one: find_measurement(one.key).is_timed
        )
        parts = self.context.split({"whole": _seconds(whole), "others": _seconds(others)})
        self._measure_all(sorted(whole, key=lambda one: -find_measurement(one.key).seconds), workers, parts["whole"])
        self._measure_all(others, None, parts["others"])
        return [self._results[one] for one in self.wanted]

    @cached_property
    def distinct(self) -> list[WantedMeasurement]:
        """Every wanted measurement once."""
        return list(dict.fromkeys(self.wanted))

    def _measure_all(self, each: Sequence[WantedMeasurement], workers: Workers | None, context: Context) -> None:
        """Measure on workers, or in this process without any; equal measurements are computed once."""
        names, tasks, measured = dict[WantedMeasurement, str](), dict[str, WorkerTask](), dict[str, StoredMeasurement]()
        for one in each:
            try:
                name = require_entry_name(find_measurement(one.key), self.store, self.benchmark, one.run_id)
                if name not in measured and name not in tasks:
                    if not find_measurement(one.key).is_timed and (
                        stored := measurement_results(self.store).find(name)
                    ):
                        measured[name] = stored
                    else:
                        tasks[name] = self._task(one, name, workers)
                names[one] = name
            except MergingError as error:
                self._results[one] = error

        def store_answer(task: WorkerTask, answer: StoredMeasurement) -> None:
            measured[task.name] = answer

        total = len({*names.values()})
        work = TaskMap(MEASURE, context, self._read, store_answer, total=total, folder=self.store.root)
        failures = work.run([*tasks.values()], workers)
        for one, name in names.items():
            self._results[one] = failures.get(name) or measured[name]

    def _task(self, one: WantedMeasurement, name: str, workers: Workers | None) -> WorkerTask:
        ask = dict if workers is None else partial(self.request, one, name, workers)
        return WorkerTask(
            name, ask, partial(self._measure, one), max(1, round(STEPS * find_measurement(one.key).seconds))
        )

    def _measure(self, one: WantedMeasurement, context: Context) -> StoredMeasurement:
        part = context.with_title(f"Measurement {self.distinct.index(one) + 1} of {len(self.distinct)}")
        return measure(one.key, self.store, self.benchmark, one.run_id, context=part)

    def request(self, one: WantedMeasurement, name: str, workers: Workers) -> Plain:
        """The request to a worker for one measurement, whose entry has this ``name``.

        Raises:
            MergingError: the run cannot be measured, or needs more memory than each worker may take.
        """
        run, digests = self.store.get_run(one.run_id), list[Plain]()
        if run.recipe is not None:
            opened = open_inputs(run.recipe, benchmark=self.benchmark)
            workers.check_memory(
                estimate_run(opened, self.benchmark, device=self.context.device).anonymous_bytes, "a measurement"
            )
            digests = [digest_for_request(checkpoint) for checkpoint in opened]
        return {
            "name": name,
            "measurement": one.key,
            "run": one.run_id,
            "digests": digests,
            "benchmark": str(self.benchmark.folder.absolute()),
            "store": store_to_plain(self.store),
            "device": self.context.device,
        }

    def _read(self, task: WorkerTask, _answer: Plain) -> StoredMeasurement:
        """The measurement that a worker wrote. Raises StoreError if this process cannot read it."""
        if (stored := measurement_results(self.store).find(task.name)) is None:
            title = find_measurement(task.ask()["measurement"]).title
            raise StoreError(f"{title} was measured by a worker, but cannot be read. Measure it again.")
        return stored


def _seconds(each: Iterable[WantedMeasurement]) -> float:
    """The estimated seconds of measurements."""
    return sum(find_measurement(one.key).seconds for one in each)
