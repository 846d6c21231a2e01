"""Measured subsets of a team in a library: all of them, or only pairs and triples for the foretold losses.

Subsets are measured on the choosing half; of all subsets, the best ones also on the reporting half.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from merging.images.benchmarks.benchmark import Benchmark
from merging.images.benchmarks.image_draws import REPORTING
from merging.recipes.presets import find_preset
from merging.study.partners.best_subsets import choose_best, list_chosen
from merging.study.partners.packed_subsets import write_packed
from merging.study.partners.stored_subsets import read_subsets
from merging.study.partners.subsets import MeasuredSubsets, list_few, plan_subsets
from merging.study.runs.run_store import Store
from merging.study.sweeps.sweep import Sweep
from merging.study.sweeps.sweep_session import plan_sweep, run_sweep
from merging.tasks.context import Context
from merging.tasks.workers.workers import Workers


def compute_subsets(
    key: str, store: Store, benchmark: Benchmark, old: Store | None, workers: Workers | None, *, only_few: bool
) -> None:
    """Put the measured subsets of a preset into ``store``, or ``only_few``; what ``old`` has is taken over."""
    recipe = find_preset(key).recipe(benchmark.pretrained, benchmark.experts)
    with tempfile.TemporaryDirectory() as folder:  # of single points, which the library does not hold
        aside = Store(Path(folder), libraries=() if old is None else tuple(old.libraries), dated=False)
        if only_few:
            _measure(plan_subsets(recipe, subsets=list_few(len(recipe.experts))), aside, store, benchmark, workers)
            return
        measured = _measure(plan_subsets(recipe), aside, store, benchmark, workers)
        chosen = list_chosen(choose_best(measured))
        _measure(plan_subsets(recipe, 0, split=REPORTING, subsets=chosen), aside, store, benchmark, workers)


def _measure(
    sweep: Sweep, aside: Store, store: Store, benchmark: Benchmark, workers: Workers | None
) -> MeasuredSubsets:
    started = time.monotonic()
    if not (measured := read_subsets(sweep, aside, benchmark)).complete:
        run_sweep(sweep, aside, benchmark, context=Context(workers=workers or ""))
        measured = read_subsets(sweep, aside, benchmark)
    write_packed(store, plan_sweep(sweep, benchmark), measured)
    words = f"{len(measured.right)} subsets of {sweep.recipes[0].text()} on the {sweep.split} half"
    print(f"{words}: {time.monotonic() - started:.1f} s", flush=True)
    return measured
