"""The unit ``measure``: a worker measures a stored run and writes the entry into the store, which it must see.

It names the entry from its own files and refuses another name than the one that was asked for. It stops at the next
tensor or batch when the program that asked is gone.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from merging.analysis import measure as measuring
from merging.analysis.registry import kind
from merging.benchmarks.benchmark import Benchmark
from merging.benchmarks.folders import seen_here
from merging.runs.several.wire import opened_as_given, store_of
from merging.tasks.context import Context
from merging.workers.sentences import sees_others
from merging.workers.shared_store import forsaken

_one_at_a_time = threading.Lock()


def measure(request: Mapping[str, Any]) -> dict[str, Any]:
    """The name of the entry that was written, or was there, with warnings.

    Raises:
        WorkerError: this worker does not see the store or a file, or sees another file. MergingError: the run cannot
            be measured.
    """
    with _one_at_a_time:  # memory is for one measurement
        cancel = forsaken(request.get("probe"))
        store, benchmark = store_of(request["store"]), Benchmark.load(seen_here(str(request["benchmark"])))
        key, run_id = str(request["measurement"]), str(request["run"])
        store.promised(run_id)
        if measuring.required_name(kind(key), store, benchmark, run_id) != request["name"]:
            raise sees_others("measurement")
        if recipe := store.run(run_id).recipe:  # none for the evaluation of a model that was not merged
            opened_as_given(recipe, None, None, request["digests"])
        said: dict[str, None] = {}
        context = Context(str(request["device"]), cancel=cancel, warn=lambda sentence: said.update({sentence: None}))
        made = measuring.measure(key, store, benchmark, run_id, context=context)
        return {"name": made.path.name, "warnings": list(said)}
