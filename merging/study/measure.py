"""Measures a stored run, or the benchmark, on request; the tables are stored beside the runs.

The name of an entry depends on the kind and version of the measurement, on the run (or only on the checkpoints that it
merged), and on the benchmark. So a stale entry is never used, and runs of the same experts share the measurements that
do not depend on the merge. Some measurements consist of trials, independent merges with their evaluations, which
workers can compute. Like a run, an entry is written completely or not at all. Entries of a library are in the
folder ``measured`` beside its runs.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from merging.base.errors import StoreError, TaskError
from merging.base.files import atomic
from merging.study.analysis.measurement_registry import Measurement, find_measurement, find_refusal
from merging.study.analysis.measurement_store import (
    MEMORY_NOTE,
    StoredMeasurement,
    entry_name,
    find_measurement_result,
    measurement_results,
    publish_partial,
    write_measurement,
)
from merging.study.analysis.measurement_subject import MeasurementResult, Subject, SubjectKind, TrialInputs
from merging.study.runs.run import split_run_ids
from merging.study.runs.run_store import Store
from merging.tasks.context import QUIET, Context
from merging.tasks.workers.pools import open_workers

if TYPE_CHECKING:
    import torch

    from merging.images.benchmarks.benchmark import Benchmark


def measure(
    key: str,
    store: Store,
    benchmark: Benchmark,
    run_id: str = "",
    *,
    context: Context = QUIET,
    layer_inputs: Mapping[str, str] | None = None,
) -> StoredMeasurement:
    """The stored measurement, or a new one; always a new one if it is repeated or there are ``layer_inputs``.

    ``run_id`` is several ids joined by "+" if runs are measured together. ``layer_inputs`` are {expert: file} for
    "layer_drift", and replace the files that the run's recipe names. If a
    measurement consists of trials, the workers of the context compute them; losing a worker is only a warning.

    Raises:
        StoreError: no such run or measurement, or the disk cannot be written to.
        CheckpointError, TaskError: the run cannot be measured. Cancelled: the user cancelled.
        WorkerError: workers cannot be opened, or several were lost during the same trial. WorkersGone: there was
            no worker for a minute; finished trials remain stored.
    """
    measurement_kind, own_layer_inputs = find_measurement(key), layer_inputs or {}
    must_measure = measurement_kind.is_repeated or bool(own_layer_inputs)
    # A measurement of the benchmark has no run; every other one needs a run.
    if (measurement_kind.subject == SubjectKind.BENCHMARK) == bool(run_id):
        raise StoreError(f"{measurement_kind.title} is a measurement of {measurement_kind.subject}.")
    if not must_measure and (stored := find_measurement_result(key, store, benchmark, run_id)):
        return stored
    name = require_entry_name(measurement_kind, store, benchmark, run_id)
    for one_id in split_run_ids(run_id):
        if reason := find_refusal(measurement_kind, store.get_run(one_id).network):
            raise TaskError(reason)
    with store.lock(name, context, "measures the same"):
        if not must_measure and (stored := find_measurement_result(key, store, benchmark, run_id)):
            return stored  # another process measured it while this one waited
        subject = Subject(store, benchmark, run_id, measurement_kind.subject, layer_inputs=own_layer_inputs)
        _measure_and_store(measurement_kind, name, subject, context)
    if (stored := find_measurement_result(key, store, benchmark, run_id)) is None:
        raise StoreError("The measurement was written but cannot be read back; is the store's folder being cleared?")
    return stored


def _measure_and_store(measurement_kind: Measurement, name: str, subject: Subject, context: Context) -> None:
    """Measure, and store the result under a name."""
    from merging.base.devices import HOST, choose_device, describe_device, retry_on_oom
    from merging.study.trials.planned_trials import Trials
    from merging.study.trials.trial_answers import StoredAnswers

    key, store = measurement_kind.key, subject.store
    measurement_results(store).sweep()
    atomic.require_writable(measurement_results(store).own_folder, "The measurement")
    started, stored_answers = time.monotonic(), StoredAnswers(store, name)

    def measure_other(other_key: str, run_id: str, part_context: Context) -> StoredMeasurement:
        return measure(other_key, store, subject.benchmark, run_id, context=part_context)

    facts = {"key": key, "version": measurement_kind.version, "run": subject.run_id}
    module, _, function = measurement_kind.compute.partition(":")
    compute: Callable[[Subject, Context], MeasurementResult] = getattr(importlib.import_module(module), function)

    def measure_on(device: torch.device) -> tuple[MeasurementResult, dict[str, Any]]:
        device_facts = {**facts, "device": describe_device(device)}
        with publish_partial(store, name, device_facts, started) as show, _limit_threads(measurement_kind, device):
            # Trials get the workers that are already open, or none.
            trial_context = (
                context.without_workers().on_device(device) if workers is None else replace(context, workers=workers)
            )
            trials = Trials(key, TrialInputs(subject.benchmark), trial_context, stored_answers)
            prepared_subject = replace(
                subject, measure_other=measure_other, show_partial=show, run_trials=trials.compute_answers
            )
            result = compute(prepared_subject, context.without_workers().on_device(device))
            return trials.add_notes(result), device_facts | trials.list_device_facts()

    with open_workers(context if measurement_kind.trial else context.without_workers()) as workers:
        (result, device_facts), warnings = retry_on_oom(
            HOST if workers is not None else choose_device(context.device), measure_on
        )
    if warnings:
        result = result._replace(notes={**result.notes, MEMORY_NOTE: " ".join(warnings)})
    write_measurement(
        store, name, result, device_facts, started, replace=measurement_kind.is_repeated or bool(subject.layer_inputs)
    )
    stored_answers.delete()


def _limit_threads(measurement: Measurement, device: torch.device) -> AbstractContextManager[None]:
    """One thread, so that results do not depend on the number of threads; a timed measurement sets it itself."""
    from merging.base.threads import limit_to_one_thread

    return nullcontext() if measurement.is_timed else limit_to_one_thread(device)


def require_entry_name(measurement: Measurement, store: Store, benchmark: Benchmark, run_id: str) -> str:
    """The name of the entry of a measurement; raises StoreError if the run is missing or merged nothing."""
    if (name := entry_name(measurement, store, benchmark, run_id)) is not None:
        return name
    store.get_run(run_id)  # raises if there is no such run
    raise StoreError(f"Run {run_id} merged nothing, so {measurement.title.lower()} cannot be measured of its experts.")
