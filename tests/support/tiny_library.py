"""A tiny benchmark with a library of precomputed runs, as the app's tests open it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import tiny

from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.presets import find_preset
from merging.study import measure as measuring
from merging.study.analysis import measurement_subject
from merging.study.runs import execute, reference_models
from merging.study.runs.run_store import Store
from merging.tasks.context import Context

PRESETS = ("weight_averaging", "task_arithmetic_lwptv", "ties")
# Text of anybody's: it must be shown as it is, wherever a title appears.
NASTY = "=A <img src=x onerror=alert(1)> **b** $x$ :red[c] [d](javascript:alert(1)) `e`"


def write(folder: Path, presets: Sequence[str] = PRESETS, halved: Collection[str] = ()) -> Path:
    """The benchmark folder: references, some presets, and one run with a nasty title in ``folder``/runs."""
    tiny.write_benchmark(folder, halved)
    benchmark = Benchmark.load(folder)
    library = Store(folder / "making", libraries=(), dated=False)
    reference_models.find_references(library, benchmark)
    recipes = [find_preset(key).recipe(benchmark.pretrained, benchmark.experts) for key in presets]
    nasty = find_preset("task_arithmetic").recipe(benchmark.pretrained, benchmark.experts)
    for recipe in (*recipes, replace(nasty, title=NASTY)):
        execute.execute(recipe, library, benchmark=benchmark, keep_model=False)
    (folder / "making" / "runs").rename(folder / "runs")
    return folder


def measure(folder: Path, *ablated: str) -> None:
    """Put drift and sign agreement of all merges beside the runs of a library, and the ablation of those so titled."""
    benchmark = Benchmark.load(folder)
    store = Store(folder / "measuring", libraries=(folder / "runs",), dated=False)
    for run in store.list_runs():
        if run.recipe is not None:
            measuring.measure("drift", store, benchmark, run.id, context=Context(device="cpu"))
            measuring.measure("signs", store, benchmark, run.id, context=Context(device="cpu"))
        if run.title in ablated:
            measuring.measure("ablation", store, benchmark, run.id, context=Context(device="cpu"))
    (folder / "measuring" / measurement_subject.FOLDER).rename(folder / measurement_subject.FOLDER)
