"""Small work of every kind of task, as a user asks for it, and what is then compared."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import small_sweeps

from merging.base.errors import MergingError
from merging.engine.evaluation import stored_features
from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.recipe import Recipe
from merging.study.measure import measure
from merging.study.measure_several import RequestedMeasurement, measure_several
from merging.study.runs.execute import execute
from merging.study.runs.execute_several import RequestedRun, execute_several
from merging.study.runs.run_store import Store
from merging.study.sweeps.sweep import LINE, PLANE, Axis
from merging.study.sweeps.sweep_session import run_sweep
from merging.tasks import worker
from merging.tasks.context import QUIET, Context
from merging.tasks.kinds import ABOUT, Request, find_kind
from merging.tasks.workers.workers import Workers

Compute = Callable[[Benchmark, Store, Workers | None, Context], None]
Bytes = Callable[[str], dict[str, Any]]  # what the store of a kind of work holds
OF_WHO_COMPUTED = ("seconds", "threads", "created", "work")  # what facts say of when, where and by whom


def _recipe(benchmark: Benchmark, merge: str, params: Mapping[str, Any] | None = None) -> Recipe:
    return Recipe.build(merge, params or {}, ("lwptv",), benchmark.pretrained, benchmark.experts)


def use_workers(workers: Workers | None, context: Context) -> Context:
    """The context in which these workers compute, or this process."""
    return replace(context, workers=workers or "")


def _points(benchmark: Benchmark, store: Store, workers: Workers | None, context: Context) -> None:
    plane = (Axis("alpha", (0.0, 1.0)), Axis("beta", (0.0, 0.5)))
    for made in (
        small_sweeps.sweep(benchmark, "task_arithmetic", "ties"),
        small_sweeps.sweep(benchmark, kind=LINE, axes=(Axis("alpha", (0.5, 1.0)),), images=7),
        small_sweeps.sweep(benchmark, kind=PLANE, axes=plane, through=("pretrained", "circles", "digits")),
    ):
        run_sweep(made, store, benchmark, context=use_workers(workers, context))


def _trials(benchmark: Benchmark, store: Store, workers: Workers | None, context: Context) -> None:
    for key in ("exemplars", "drm_ablations", "task_counts"):
        measure(key, store, benchmark, context=use_workers(workers, context))


def _tensors(benchmark: Benchmark, store: Store, workers: Workers | None, context: Context) -> None:
    for merge, params in (("drm", {}), ("tsv_m", {}), ("wudi", {"steps": 3})):
        chain, computing = _recipe(benchmark, merge, params), use_workers(workers, context)
        execute(chain, store, benchmark=benchmark, evaluate=False, context=computing)


def _scores(benchmark: Benchmark, store: Store, workers: Workers | None, context: Context) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored_features, "MIN_OPERATIONS", 1)  # features are kept however few images they are of
        chain = _recipe(benchmark, "task_arithmetic")
        execute(chain, store, benchmark=benchmark, context=use_workers(workers, context))


def _runs(benchmark: Benchmark, store: Store, workers: Workers | None, context: Context) -> None:
    merges = ("task_arithmetic", "ties", "weight_averaging", "tsv_m")
    wanted = [RequestedRun(_recipe(benchmark, merge)) for merge in merges]
    _raise_first(execute_several(wanted, store, benchmark=benchmark, context=use_workers(workers, context)))


def _measurements(benchmark: Benchmark, store: Store, workers: Workers | None, context: Context) -> None:
    made = [
        execute(
            _recipe(benchmark, merge),
            store,
            benchmark=benchmark,
            keep_model=merge == "ties",
            context=QUIET.on_device("cpu"),
        )
        for merge in ("ties", "task_arithmetic")
    ]
    wanted = [RequestedMeasurement(key, run.id) for key in ("drift", "signs", "pairs") for run in made]
    _raise_first(measure_several(wanted, store, benchmark, context=use_workers(workers, context)))


def _raise_first(found: list[Any]) -> None:
    """Raise the first error among results."""
    for error in found:
        if isinstance(error, MergingError):
            raise error


ALL_KINDS: Mapping[str, tuple[str, Compute]] = {  # what progress calls it, and work that consists of such tasks
    "point": ("Point", _points), "trial": ("Trial", _trials), "tensor": ("Tensor", _tensors),
    "score": ("Evaluation", _scores), "run": ("Run", _runs), "measure": ("Measurement", _measurements),
}  # fmt: skip
SHORT_KINDS = [pytest.param(kind, marks=pytest.mark.full) if kind == "trial" else kind for kind in ALL_KINDS]


def stored_bytes(store: Store) -> dict[str, Any]:
    """Every file of a store; of facts what does not depend on who computed. Manifests follow from the others."""
    found: dict[str, Any] = {}
    for path in sorted(store.root.rglob("*")):
        name = path.relative_to(store.root).as_posix()
        if path.name in {"run.json", "measured.json"}:
            facts = json.loads(path.read_bytes())
            found[name] = {key: value for key, value in facts.items() if key not in OF_WHO_COMPUTED}
        elif path.is_file() and path.name != "manifest.json" and path.parent.name != "locks":
            found[name] = path.read_bytes()
    return found


class RecordingPool(Executor):
    """Threads that note what they are asked; what is about the worker itself is not noted."""

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(2)
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def submit(self, function: Any, /, *said: Any, **more: Any) -> Future[Any]:
        kind, request = said
        if kind != ABOUT:
            self.asked.append((kind, json.loads(request)))
        return self.pool.submit(function, *said, **more)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self.pool.shutdown(wait, cancel_futures=cancel_futures)


def call_before_each_task(monkeypatch: pytest.MonkeyPatch, act: Callable[[str, Request], None]) -> None:
    """Let workers in this process call ``act`` with the kind and the request of a task before they compute it."""

    def found(key: str) -> Any:
        kind = find_kind(key)

        def compute(inputs: Any, request: Request, context: Context) -> Any:
            if key != ABOUT:
                act(key, request)
            return kind.compute(inputs, request, context)

        return replace(kind, compute=compute)

    monkeypatch.setattr(worker, "find_kind", found)
