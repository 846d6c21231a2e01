"""Fixtures that the tests of faults share: a small library, a store with something of every kind in it, a runner,
and a process that forks others."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import fault_store
import pytest
import tiny_library
from fault_store import FaultStore
from nursery import ProcessForker

from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.presets import find_preset
from merging.recipes.recipe import Recipe
from merging.study import measure
from merging.study.run_queue import RunQueue
from merging.study.runs.execute import execute
from merging.study.runs.run import Run
from merging.study.runs.run_store import Store
from merging.study.sweeps import sweep_session as sweep_compute
from merging.study.sweeps import sweep_storage
from merging.study.sweeps.sweep import Axis, Sweep
from merging.tasks.context import Context
from merging.tasks.queue.job_records import JobFiles


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_library.write(tmp_path_factory.mktemp("library"))


@pytest.fixture(scope="session")
def full_store(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a run, two measurements of it, a complete sweep and the record of a failed job; do not change it."""
    root = tmp_path_factory.mktemp("full")
    benchmark, store = Benchmark.load(library), Store(root, libraries=(library / "runs",))
    recipe = find_preset("task_arithmetic_lwptv").recipe(benchmark.pretrained, benchmark.experts)
    own = Recipe.build("ties", {"density": 0.3}, ["lwptv"], recipe.pretrained, dict(recipe.experts), "An own run")
    run = execute(own, store, benchmark=benchmark, context=Context(device="cpu"))
    for key in ("drift", "signs"):
        measure.measure(key, store, benchmark, run.id, context=Context(device="cpu"))
    sweep = Sweep(recipes=(recipe,), axes=(Axis("lwptv.prune_ratio", (0.0, 0.5)),), images=8, title="An own sweep")
    sweep_storage.store_sweep(sweep, store)
    sweep_compute.run_sweep(sweep, store, benchmark, context=Context(device="cpu"))
    words = ("export", run.id, "--out", "x")
    files = JobFiles(store.root / "jobs", f"export-hf-{run.id}")
    files.create("", title="An export", base=root, kind="export-hf", subject=run.id, words=words)
    files.update(state="failed", error="It failed.")
    return root


@pytest.fixture
def filled(full_store: Path, tmp_path: Path) -> Run:
    """The run in a copy of that store, where ``open_app`` has its store."""
    shutil.copytree(full_store, tmp_path / "store")
    (run,) = Store(tmp_path / "store", libraries=()).list_runs()
    return run


@pytest.fixture
def runner(tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunQueue]:
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(tiny_folder))
    made = RunQueue(Store(tmp_path / "store", libraries=()), device="cpu")
    yield made
    made.close()


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Sets the program that children run in place of a command."""

    def use(code: str) -> None:
        def start(files: JobFiles, *_: object) -> subprocess.Popen[bytes]:
            return subprocess.Popen([sys.executable, "-c", code], start_new_session=True)

        monkeypatch.setattr(JobFiles, "start", start)

    return use


@pytest.fixture(scope="session")
def nursery() -> Iterator[ProcessForker]:
    """A warm process; closed at the end."""
    made = ProcessForker()
    yield made
    made.close()


@pytest.fixture(scope="session")
def stocked(tmp_path_factory: pytest.TempPathFactory, tiny_benchmark: Benchmark) -> FaultStore:
    """A store with something of everything; copy it, do not change it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MERGESCOPE_BENCHMARK", str(tiny_benchmark.folder))
        return fault_store.write(tmp_path_factory.mktemp("faults"), tiny_benchmark)


@pytest.fixture
def environment(tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    """The environment of processes: the tiny benchmark, and the store of this test."""
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(tiny_folder))
    return {**os.environ, "MERGESCOPE_BENCHMARK": str(tiny_folder)}
