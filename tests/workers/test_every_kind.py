"""Every kind of task on workers: the same bytes as here, and nothing lost but what was under way."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import small_sweeps

from merging.analysis.measure import measure
from merging.analysis.several.measure_several import WantedMeasurement, measure_several
from merging.benchmarks import kept_features
from merging.benchmarks.benchmark import Benchmark
from merging.errors import Cancelled, Paused, WorkersGone
from merging.progress import Progress
from merging.recipes.recipe import Recipe
from merging.runs.execute import execute
from merging.runs.several.execute_several import WantedRun, execute_several
from merging.runs.store import Store
from merging.sweeps.compute import run as run_sweep
from merging.sweeps.sweep import LINE, PLANE, Axis
from merging.tasks.context import QUIET, Context
from merging.tasks.kinds import ABOUT, KINDS
from merging.workers import fan_out, pools
from merging.workers.pools import processes
from merging.workers.workers import Workers

pytestmark = pytest.mark.usefixtures("smaller_measurements")
Compute = Callable[[Benchmark, Store, Workers | None, Context], None]
OF_WHO_COMPUTED = ("seconds", "threads", "created", "work")  # what facts say of when, where and by whom


def recipe(benchmark: Benchmark, merge: str, params: Mapping[str, Any] | None = None) -> Recipe:
    return Recipe.build(merge, params or {}, ("lwptv",), benchmark.pretrained, benchmark.experts)


def points(benchmark: Benchmark, store: Store, workers: Workers | None, context: Context) -> None:
    plane = (Axis("circles", (0.0, 1.0)), Axis("digits", (0.0, 0.5)))
    for made in (
        small_sweeps.sweep(benchmark, "task_arithmetic", "ties"),
        small_sweeps.sweep(benchmark, kind=LINE, axes=(Axis("alpha", (0.5, 1.0)),), images=7),
        small_sweeps.sweep(benchmark, kind=PLANE, axes=plane),
    ):
        run_sweep(made, store, benchmark, context=replace(context, workers=workers or ""))


def trials(benchmark: Benchmark, store: Store, workers: Workers | None, context: Context) -> None:
    for key in ("exemplars", "drm_ablations", "task_counts"):
        measure(key, store, benchmark, context=replace(context, workers=workers or ""))


def tensors(benchmark: Benchmark, store: Store, workers: Workers | None, context: Context) -> None:
    for merge, params in (("drm", {}), ("tsv_m", {}), ("wudi", {"steps": 3})):
        chain, computing = recipe(benchmark, merge, params), replace(context, workers=workers or "")
        execute(chain, store, benchmark=benchmark, evaluate=False, context=computing)


def scores(benchmark: Benchmark, store: Store, workers: Workers | None, context: Context) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept_features, "WORTH", 1)  # features are kept however few images they are of
        computing = replace(context, workers=workers or "")
        execute(recipe(benchmark, "task_arithmetic"), store, benchmark=benchmark, context=computing)


def runs(benchmark: Benchmark, store: Store, workers: Workers | None, context: Context) -> None:
    wanted = [WantedRun(recipe(benchmark, merge)) for merge in ("task_arithmetic", "ties", "weight_averaging", "tsv_m")]
    execute_several(wanted, store, benchmark=benchmark, context=replace(context, workers=workers or ""))


def measurements(benchmark: Benchmark, store: Store, workers: Workers | None, context: Context) -> None:
    made = [
        execute(
            recipe(benchmark, merge), store, benchmark=benchmark, keep_model=merge == "ties", context=QUIET.on("cpu")
        )
        for merge in ("ties", "task_arithmetic")
    ]
    wanted = [WantedMeasurement(key, run.id) for key in ("drift", "signs", "predictions") for run in made]
    measure_several(wanted, store, benchmark, context=replace(context, workers=workers or ""))


EVERY: Mapping[str, tuple[str, Compute]] = {  # what progress calls it
    "point": ("Point", points), "trial": ("Trial", trials), "tensor": ("Tensor", tensors),
    "score": ("Evaluation", scores), "run": ("Run", runs), "measure": ("Measurement", measurements),
}  # fmt: skip


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


@pytest.fixture(scope="module")
def here(
    tiny_benchmark: Benchmark, tmp_path_factory: pytest.TempPathFactory, smaller_measurements: None
) -> dict[str, dict[str, Any]]:
    """The stores of every kind that no worker computed."""
    found = {}
    for kind, (_, compute) in EVERY.items():
        store = Store(tmp_path_factory.mktemp(kind), libraries=())
        compute(tiny_benchmark, store, None, Context("cpu"))
        found[kind] = stored_bytes(store)
    return found


@contextlib.contextmanager
def lent(workers: Workers) -> Iterator[None]:
    """Workers of the test's own are those that any text names."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pools, "opened", lambda *_: contextlib.nullcontext(workers))
        yield


def test_every_kind_is_tested() -> None:
    assert {*EVERY, ABOUT} == set(KINDS)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 3])
def test_it_is_the_same_bytes_whoever_computes(
    tiny_benchmark: Benchmark, here: dict[str, dict[str, Any]], tmp_path: Path, count: int
) -> None:
    workers = processes([""] * count, f"{count} processes")
    with lent(workers):
        for kind, (noun, compute) in EVERY.items():
            store, said = Store(tmp_path / kind, libraries=()), list[str]()
            compute(tiny_benchmark, store, workers, Context("cpu", lambda now, said=said: said.append(now.phase)))
            assert stored_bytes(store) == here[kind], kind
            words = [phase for phase in said if phase.startswith(noun)]
            assert words and all(phase.endswith(f"on {count} worker{'s' * (count > 1)}") for phase in words), kind
            assert not list(store.root.rglob("*tmp-*")), kind
    workers.close(workers.executor)


@pytest.mark.slow
def test_a_killed_worker_loses_nothing(
    tiny_benchmark: Benchmark, here: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    workers = processes(["", ""], "two processes")
    with lent(workers):
        for kind, (noun, compute) in EVERY.items():
            store, victims, warned = Store(tmp_path / kind, libraries=()), list[int](), list[str]()

            def kill(now: Progress, noun: str = noun, victims: list[int] = victims) -> None:
                if now.phase.startswith(noun) and not victims:
                    victims.append(next(iter(workers.executor._processes)))  # type: ignore[attr-defined]
                    os.kill(victims[0], signal.SIGKILL)

            compute(tiny_benchmark, store, workers, Context("cpu", kill, warn=warned.append))
            assert stored_bytes(store) == here[kind], kind
            assert re.search(f"A worker was lost; .* {noun.lower()}s? (is|are) computed again", " ".join(warned)), kind
            assert not list(Store(store.root, libraries=()).root.rglob("*tmp-*")), kind
    workers.close(workers.executor)


@pytest.mark.parametrize("kind", EVERY)
def test_cancel_ends_it(tiny_benchmark: Benchmark, tmp_path: Path, threads: Workers, kind: str) -> None:
    (noun, compute), store, stop = EVERY[kind], Store(tmp_path, libraries=()), threading.Event()

    def first(now: Progress) -> None:
        if now.phase.startswith(noun):
            stop.set()

    with lent(threads), pytest.raises(Cancelled):
        compute(tiny_benchmark, store, threads, Context("cpu", first, stop))
    threads.executor.shutdown()
    assert not list(store.root.rglob("*tmp-*"))


KEPT = {  # what is said when all workers are gone; an evaluation is then computed here
    "point": r"[1-9] of 6 points are kept\. Resume", "trial": r"[1-9] of 12 trials are kept\. Resume",
    "tensor": r"Nothing of this merge is kept\. Resume", "run": r"[1-3] of 4 runs are kept\.",
    "measure": r"[1-4] of 5 measurements are kept\.",
}  # fmt: skip


@pytest.mark.parametrize("kind", KEPT)
def test_what_is_finished_is_kept_when_all_workers_are_gone(
    tiny_benchmark: Benchmark, tmp_path: Path, threads: Workers, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(fan_out, "GONE", 0.1)
    (noun, compute), store, gone = EVERY[kind], Store(tmp_path, libraries=()), threading.Event()
    leaving = replace(
        threads, present=lambda: not gone.is_set(), lost=(RuntimeError,), called="the workers at tls://a", kind="a kind"
    )

    def leave(now: Progress) -> None:
        if re.match(f"{noun} 1 of", now.phase):
            gone.set()
            threads.executor.shutdown(wait=False, cancel_futures=True)

    with lent(leaving), pytest.raises(WorkersGone, match=rf"^The workers at tls://a are gone\. {KEPT[kind]}"):
        compute(tiny_benchmark, store, leaving, Context("cpu", leave))


@pytest.mark.parametrize(("kind", "words"), [("point", ""), ("run", "Paused. 2 of 4 runs are kept.")])
def test_a_pause_lets_the_window_finish(
    tiny_benchmark: Benchmark, tmp_path: Path, threads: Workers, kind: str, words: str
) -> None:
    (_, compute), store, asked = EVERY[kind], Store(tmp_path, libraries=()), iter(range(99))
    context = Context("cpu", pause=lambda: next(asked) >= 2)
    with pytest.raises(Paused, match=words) if words else contextlib.nullcontext():
        compute(tiny_benchmark, store, threads, context)
    finished = [name for name in stored_bytes(store) if name.endswith(("point.json", "run.json"))]
    assert len(finished) == 2
