"""The task "measure": a worker measures a stored run and writes the result into the store."""

from __future__ import annotations

from typing import NamedTuple

from merging.images.benchmarks.benchmark import Benchmark
from merging.images.benchmarks.benchmark_folders import resolve_benchmark
from merging.study.analysis.measurement_registry import find_measurement
from merging.study.measure import measure, require_entry_name
from merging.study.runs.run_store import Store
from merging.study.runs.worker_requests import open_with_digests, store_from_plain
from merging.tasks.context import Context
from merging.tasks.kinds import Plain, Request, TaskKind


class StoreAndBenchmark(NamedTuple):
    """The store of the run, and the benchmark that it is measured on."""

    store: Store
    benchmark: Benchmark


def open_store(request: Request) -> StoreAndBenchmark:
    """The store and the benchmark of a request."""
    return StoreAndBenchmark(
        store_from_plain(request["store"]), Benchmark.load(resolve_benchmark(str(request["benchmark"])))
    )


def name_measurement(inputs: StoreAndBenchmark, request: Request) -> str:
    """The name of the entry of a request. Raises WorkerError or CheckpointError if this process does not see a file."""
    store, run_id = inputs.store, str(request["run"])
    store.find_on_shared_disk(run_id)
    name = require_entry_name(find_measurement(str(request["measurement"])), store, inputs.benchmark, run_id)
    if name == request["name"] and (recipe := store.get_run(run_id).recipe):  # none for a model that was not merged
        open_with_digests(recipe, None, None, request["digests"])
    return name


def compute_measurement(inputs: StoreAndBenchmark, request: Request, context: Context) -> Plain:
    """The name of the entry that was written, or that existed."""
    stored = measure(str(request["measurement"]), *inputs, str(request["run"]), context=context)
    return {"name": stored.path.name}


KIND = TaskKind("measurement", open_store, compute_measurement, name_measurement, stored=True, writes_to_store=True)
