"""Computes several measurements, in this process or on workers that see the store.

If a measurement consists of trials, workers compute the trials; any other measurement is computed whole by one worker.
Timed measurements are computed in this process, after the workers have finished all others. The workers are opened once
and lent, in the context, to the measurements that this process computes.
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
from merging.study.analysis.measurement_subject import SubjectKind
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

STEPS_PER_SECOND = 1000  # of progress


class RequestedMeasurement(NamedTuple):
    """The key of a measurement, and the id of the run to measure; the id is empty for the benchmark."""

    key: str
    run_id: str = ""


def measure_several(
    requests: Sequence[RequestedMeasurement], store: Store, benchmark: Benchmark, *, context: Context = QUIET
) -> list[StoredMeasurement | MergingError]:
    """The stored measurement of each request, in the order of the requests; the error instead if one fails.

    Workers of the context compute missing measurements if they see the store; otherwise this process does.

    Raises:
        StoreError: the disk cannot be written to. Cancelled, Paused: the user cancelled or
            paused; finished measurements remain stored.
    """
    with open_workers(context) as workers:
        measurements = SeveralMeasurements(list(requests), store, benchmark, replace(context, workers=workers or ""))
        return measurements.measure_all(workers)


@dataclass
class SeveralMeasurements:
    """Measurements to compute in a context; ``_results`` is {request: its measurement or error}."""

    requests: Sequence[RequestedMeasurement]
    store: Store
    benchmark: Benchmark
    context: Context
    _results: dict[RequestedMeasurement, StoredMeasurement | MergingError] = field(default_factory=dict)

    def measure_all(self, workers: Workers | None) -> list[StoredMeasurement | MergingError]:
        """The measurement or error of each request.

        Workers first compute measurements without trials; then this process computes those with trials, and last those
        that are timed.
        """
        on_workers = [
            request
            for request in self.distinct_requests
            if workers is not None
            and find_measurement(request.key).subject != SubjectKind.RUNS  # mostly reads what others measured
            and not find_measurement(request.key).trial
            and not find_measurement(request.key).is_timed
        ]
        in_process = sorted(
            (request for request in self.distinct_requests if request not in on_workers),
            key=lambda request: find_measurement(request.key).is_timed,
        )
        parts = self.context.split(
            {"on workers": _estimate_seconds(on_workers), "in process": _estimate_seconds(in_process)}
        )
        self._measure_requests(
            sorted(on_workers, key=lambda request: -find_measurement(request.key).seconds), workers, parts["on workers"]
        )
        # Not measured whole by workers; ``measure`` finds the lent workers in the context, for trials.
        self._measure_requests(in_process, None, parts["in process"])
        return [self._results[request] for request in self.requests]

    @cached_property
    def distinct_requests(self) -> list[RequestedMeasurement]:
        """Every request once."""
        return list(dict.fromkeys(self.requests))

    def _measure_requests(
        self, requests: Sequence[RequestedMeasurement], workers: Workers | None, context: Context
    ) -> None:
        """Measure on workers, or in this process if there are none; equal measurements are computed once."""
        names, tasks, results = (
            dict[RequestedMeasurement, str](),
            dict[str, WorkerTask](),
            dict[str, StoredMeasurement](),
        )
        for request in requests:
            try:
                name = require_entry_name(find_measurement(request.key), self.store, self.benchmark, request.run_id)
                if name not in results and name not in tasks:
                    if not find_measurement(request.key).is_repeated and (
                        stored_result := measurement_results(self.store).find(name)
                    ):
                        results[name] = stored_result
                    else:
                        tasks[name] = self._make_task(request, name, workers)
                names[request] = name
            except MergingError as error:
                self._results[request] = error

        def store_answer(task: WorkerTask, answer: StoredMeasurement) -> None:
            results[task.name] = answer

        distinct_count = len({*names.values()})
        task_map = TaskMap(
            MEASURE, context, self._read_measurement, store_answer, total=distinct_count, folder=self.store.root
        )
        failures = task_map.run([*tasks.values()], workers)
        for request, name in names.items():
            self._results[request] = failures.get(name) or results[name]

    def _make_task(self, request: RequestedMeasurement, name: str, workers: Workers | None) -> WorkerTask:
        # ``dict`` makes an empty request, which is never sent
        make_request = dict if workers is None else partial(self.make_request, request, name, workers)
        return WorkerTask(
            name,
            make_request,
            partial(self._measure, request),
            max(1, round(STEPS_PER_SECOND * find_measurement(request.key).seconds)),
        )

    def _measure(self, request: RequestedMeasurement, context: Context) -> StoredMeasurement:
        part_context = context.with_title(
            f"Measurement {self.distinct_requests.index(request) + 1} of {len(self.distinct_requests)}"
        )
        return measure(request.key, self.store, self.benchmark, request.run_id, context=part_context)

    def make_request(self, request: RequestedMeasurement, name: str, workers: Workers) -> Plain:
        """The request to a worker for one measurement, whose entry has this ``name``.

        Raises:
            MergingError: the run cannot be measured, or needs more memory than each worker may take.
        """
        run, digests = self.store.get_run(request.run_id), list[Plain]()
        if run.recipe is not None:
            opened = open_inputs(run.recipe, benchmark=self.benchmark)
            workers.check_memory(
                estimate_run(opened, self.benchmark, device=self.context.device).anonymous_bytes, "a measurement"
            )
            digests = [digest_for_request(checkpoint) for checkpoint in opened]
        return {
            "name": name,
            "measurement": request.key,
            "run": request.run_id,
            "digests": digests,
            "benchmark": str(self.benchmark.folder.absolute()),
            "store": store_to_plain(self.store),
            "device": self.context.device,
        }

    def _read_measurement(self, task: WorkerTask, _answer: Plain) -> StoredMeasurement:
        """The measurement that a worker wrote. Raises StoreError if this process cannot read it."""
        if (stored := measurement_results(self.store).find(task.name)) is None:
            title = find_measurement(task.make_request()["measurement"]).title
            raise StoreError(f"{title} was measured by a worker, but cannot be read. Measure it again.")
        return stored


def _estimate_seconds(requests: Iterable[RequestedMeasurement]) -> float:
    """The estimated seconds of measurements."""
    return sum(find_measurement(request.key).seconds for request in requests)
