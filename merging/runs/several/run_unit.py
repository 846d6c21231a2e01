"""The unit ``run``: a worker computes a whole run and writes it into the store, which it must see.

It names the run from its own files and refuses another name than the one that was asked for. It stops at the next
tensor or batch when the program that asked is gone.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from merging.benchmarks.benchmark import Benchmark
from merging.benchmarks.folders import seen_here
from merging.recipes.recipe import Recipe
from merging.runs.execute import execute
from merging.runs.several.wire import opened_as_given, store_of
from merging.tasks.context import Context
from merging.workers.sentences import sees_others
from merging.workers.shared_store import forsaken

_one_at_a_time = threading.Lock()


def run(request: Mapping[str, Any]) -> dict[str, Any]:
    """The name of the run that was written, or was there, with warnings.

    Raises:
        WorkerError: this worker does not see the store or a file, or sees another file. MergingError: the recipe cannot
            be run.
    """
    with _one_at_a_time:  # memory is for one run
        cancel = forsaken(request.get("probe"))
        recipe, base = Recipe.from_plain(request["recipe"]), Path(str(request["base"]))
        benchmark = Benchmark.load(seen_here(str(request["benchmark"]))) if request["benchmark"] else None
        opened = opened_as_given(recipe, base, benchmark, request["digests"])
        if opened.run_id() != request["name"] or (benchmark and benchmark.digest != request["images"]):
            raise sees_others("run")
        said: dict[str, None] = {}
        context = Context(str(request["device"]), cancel=cancel, warn=lambda sentence: said.update({sentence: None}))
        store, options = store_of(request["store"]), request["options"]
        made = execute(recipe, store, benchmark=benchmark, base=base, context=context, **options)
        return {"name": made.id, "warnings": list(said)}
