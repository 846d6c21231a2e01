"""The task "run": a worker computes a whole run and writes it into the store."""

from __future__ import annotations

from pathlib import Path

from merging.images.benchmarks.benchmark import Benchmark
from merging.images.benchmarks.benchmark_folders import resolve_benchmark
from merging.recipes.recipe import Recipe
from merging.study.runs.execute import execute
from merging.study.runs.opened_recipe import OpenedRecipe
from merging.study.runs.worker_requests import open_with_digests, store_from_plain
from merging.tasks.context import Context
from merging.tasks.kinds import Plain, Request, TaskKind


def open_recipe(request: Request) -> OpenedRecipe:
    """The recipe with its files open. Raises WorkerError or CheckpointError if this process does not see a file."""
    benchmark = Benchmark.load(resolve_benchmark(str(request["benchmark"]))) if request["benchmark"] else None
    recipe, base = Recipe.from_plain(request["recipe"]), Path(str(request["base"]))
    return open_with_digests(recipe, base, benchmark, request["digests"])


def name_run(opened: OpenedRecipe, request: Request) -> str:
    """The id of the run; empty if this process sees other images."""
    has_same_images = opened.benchmark is None or opened.benchmark.digest == request["images"]
    return opened.run_id() if has_same_images else ""


def compute_run(opened: OpenedRecipe, request: Request, context: Context) -> Plain:
    """The id of the run that was written, or that existed."""
    store, options = store_from_plain(request["store"]), request["options"]
    run = execute(opened.recipe, store, benchmark=opened.benchmark, base=opened.base, context=context, **options)
    return {"name": run.id}


KIND = TaskKind("run", open_recipe, compute_run, name_run, stored=True, writes_to_store=True)
