"""Small sweeps on the tiny benchmark, and their points."""

from __future__ import annotations

import json
from typing import Any

from contexts import context_of

from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.recipe import Recipe
from merging.study.runs.run_store import Store
from merging.study.sweeps import points, sweep_storage
from merging.study.sweeps import sweep_session as sweep_compute
from merging.study.sweeps.known_points import KnownPoints
from merging.study.sweeps.sweep import Axis, Sweep

RATIO = Axis("lwptv.prune_ratio", (0.0, 0.5, 0.9))


def recipe(benchmark: Benchmark, merge: str = "task_arithmetic", **said: Any) -> Recipe:
    edits = said.pop("edits", ["lwptv"])
    return Recipe.build(merge, said.pop("params", {}), edits, benchmark.pretrained, benchmark.experts, **said)


def value_of(recipe: Recipe, target: str) -> float | None:
    """The recipe's own value of a target, such as "lwptv.prune_ratio"; None if it is unset."""
    owner, _, name = target.rpartition(".")
    settings = {"exemplars": recipe.exemplars, "test_data": recipe.test_data}
    if owner in settings:
        drawn = settings[owner]
        value = None if drawn is None else drawn.values()[name]
    else:
        key, _, number = owner.partition("#")  # of equal steps; without a step the last that has such a parameter
        values = [step.params.values() for _, step in recipe.stages if key in ("", step.key)]
        value = [given[name] for given in values if name in given][int(number or 1) - 1 if key else -1]
    return None if value is None else float(value)


def sweep(benchmark: Benchmark, *merges: str, **said: Any) -> Sweep:
    recipes = tuple(recipe(benchmark, merge) for merge in merges or ("task_arithmetic",))
    return Sweep(**({"recipes": recipes, "axes": (RATIO,), "images": 0} | said))


def run(found: Sweep, store: Store, benchmark: Benchmark, **said: Any) -> sweep_compute.SweepOutcome:
    sweep_storage.store_sweep(found, store)
    return sweep_compute.run_sweep(found, store, benchmark, context=context_of(said), **said)


def names(store: Store) -> set[str]:
    return {path.name for path in points.points_folder(store).glob("?" * 12)}


def read_facts(store: Store) -> list[dict[str, Any]]:
    """What is stored about every point."""
    return [
        json.loads((points.points_folder(store) / name / points.FACTS).read_bytes()) for name in sorted(names(store))
    ]


def read_points(found: Sweep, store: Store, benchmark: Benchmark) -> dict[str, points.Point]:
    every, sample = sweep_compute.plan_sweep(found, benchmark), found.sample.normalize_on(benchmark)
    return dict(KnownPoints(every, store, benchmark, sample).read_points())
