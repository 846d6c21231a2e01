"""What is measured of a stored run, or of the benchmark, when somebody asks: tables that lie beside the runs.

An entry is named by what it depends on (the kind of measurement and its version, the run or only the checkpoints that
it merged, the benchmark), so a stale one is never found, and runs on the same experts share what does not depend on
how they were merged. Own entries are written like runs, whole or not at all; a library brings its own in ``measured``
beside its runs.
"""

from __future__ import annotations

import importlib
import time
from typing import TYPE_CHECKING

from merging.analysis.context import MeasurementContext, MeasurementResult, Of, own_folder
from merging.analysis.registry import kind
from merging.analysis.stored import Measured, entry_name, find, write
from merging.errors import StoreError
from merging.files import atomic
from merging.progress import Cancel, ProgressCallback
from merging.runs.store import Store

if TYPE_CHECKING:
    from merging.benchmarks.benchmark import Benchmark


def measure(
    key: str,
    store: Store,
    benchmark: Benchmark,
    run_id: str = "",
    *,
    device: str = "auto",
    progress: ProgressCallback | None = None,
    cancel: Cancel | None = None,
) -> Measured:
    """The measurement: the one that is there, or a new one.

    Raises:
        StoreError: no such run or measurement, or the disk cannot be written to.
        CheckpointError, TaskError: the run cannot be measured; says why. Cancelled: ``cancel`` said so.
    """
    from merging.devices import choose_device, describe_device

    wanted = kind(key)
    if (wanted.of == Of.BENCHMARK) == bool(run_id):
        raise StoreError(f"{wanted.title} is measured of {wanted.of}.")
    if found := find(key, store, benchmark, run_id):
        return found
    if (name := entry_name(wanted, store, benchmark, run_id)) is None:
        store.run(run_id)  # says that there is no such run
        raise StoreError(f"Run {run_id} merged nothing, so {wanted.title.lower()} cannot be measured of its experts.")
    atomic.sweep(own_folder(store))
    started = time.monotonic()

    def measurement(key: str, tell: ProgressCallback | None) -> Measured:
        return measure(key, store, benchmark, run_id, device=device, progress=tell, cancel=cancel)

    subject = MeasurementContext(store, benchmark, run_id, device, progress, cancel, wanted.of, measurement)
    module, _, function = wanted.compute.partition(":")
    result: MeasurementResult = getattr(importlib.import_module(module), function)(subject)
    where = describe_device(choose_device(device))
    said = {"key": key, "version": wanted.version, "run": run_id, "device": where}
    write(own_folder(store), name, result, said, started)
    if (found := find(key, store, benchmark, run_id)) is None:
        raise StoreError("It was measured but cannot be read back; is the store's folder being cleared?")
    return found


def sweep(store: Store, writer: int) -> None:
    """Remove what a writer that is known to be dead has left behind."""
    atomic.sweep(own_folder(store), writer)
