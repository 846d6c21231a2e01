"""Sweeps of a library's benchmark in a store of their own, and their pickers on the Sweeps page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streamlit.testing.v1 import AppTest

from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.presets import find_preset
from merging.study.runs.run_store import Store
from merging.study.sweeps import points, sweep_storage
from merging.study.sweeps import sweep_session as sweep_compute
from merging.study.sweeps.sweep import Axis, Sweep
from merging.study.sweeps.sweep_tables import average_rows, sweep_table
from merging.tasks.context import Context


def run_library_sweep(folder: Path, store: Path, compute: int | None = None, **said: Any) -> Sweep:
    """A sweep of the library's benchmark in a store, with so many of its points (None: all)."""
    benchmark, own = Benchmark.load(folder), Store(store, libraries=(folder / "runs",))
    keys = said.pop("presets", ("task_arithmetic_lwptv", "ties_lwptv"))
    recipes = tuple(find_preset(key).recipe(benchmark.pretrained, benchmark.experts) for key in keys)
    found = Sweep(recipes=recipes, **({"axes": (Axis("lwptv.prune_ratio", (0.0, 0.5, 0.9)),), "images": 8} | said))
    sweep_storage.store_sweep(found, own)
    asked = iter(range(10_000))
    sweep_compute.run_sweep(
        found, own, benchmark, context=Context("cpu", pause=lambda: compute is not None and next(asked) >= compute)
    )
    return found


def means_of(found: Sweep, folder: Path, store: Path) -> Any:
    """The averages of every point of a sweep."""
    benchmark, own = Benchmark.load(folder), Store(store, libraries=(folder / "runs",))
    planned = sweep_compute.plan_sweep(found, benchmark)
    computed = {one.name: point for one in planned if (point := points.find_point(own, one.name))}
    return average_rows(sweep_table(found, planned, computed))


def picker(at: AppTest, name: str) -> Any:
    return next(found for found in at.selectbox if str(found.key).startswith(name))
