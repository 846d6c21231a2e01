"""One run that several processes or threads compute at the same time."""

from __future__ import annotations

import contextlib
import multiprocessing
import sys
import threading
import types

import pytest

from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.recipe import Recipe
from merging.study.runs import run_work
from merging.study.runs.execute import execute
from merging.study.runs.opened_recipe import open_inputs
from merging.study.runs.run_store import Store
from merging.tasks.context import Context


def _execute_apart(root, folder, results):
    """In a process of its own: the same run, with the lock out of order."""
    Store.lock = lambda self, *args: contextlib.nullcontext()  # type: ignore[method-assign]
    benchmark = Benchmark.load(folder)
    recipe = Recipe.build("ties", {}, ["lwptv"], benchmark.pretrained, benchmark.experts)
    run = execute(recipe, Store(root, libraries=()), benchmark=benchmark, context=Context(device="cpu"))
    results.put((run.id, open_inputs(recipe).run_id(), run.model_path.read_bytes()))


@pytest.mark.full
def test_two_processes_and_a_broken_lock(tmp_path, tiny_folder, run_it, recipe, monkeypatch):
    """Work may be done twice, but there is one run, whole, with the same bytes."""
    # Page tests leave a script of theirs as __main__, which a spawned process would run again.
    monkeypatch.setitem(sys.modules, "__main__", types.ModuleType("__main__"))
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    arguments = (tmp_path / "store", tiny_folder, results)
    processes = [context.Process(target=_execute_apart, args=arguments) for _ in range(2)]
    for process in processes:
        process.start()
    found = [results.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
    assert found[0] == found[1]
    assert [path.name for path in (tmp_path / "store" / "runs").iterdir()] == [found[0][0]]
    assert Store(tmp_path / "store", libraries=()).get_run(found[0][0]).scores is not None


@pytest.mark.parametrize("locked", [True, False])
def test_threads_on_the_same_run(recipe, run_it, store, monkeypatch, locked):
    computed, problems = [], []

    def counted(method):
        return lambda *args: computed.append(1) or method(*args)

    for name in ("merge", "add_scores"):
        monkeypatch.setattr(run_work.RunWork, name, counted(getattr(run_work.RunWork, name)))
    if not locked:
        monkeypatch.setattr(Store, "lock", lambda self, *args: contextlib.nullcontext())

    def call():
        try:
            assert run_it(recipe).scores is not None
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert len(store.list_runs()) == 1
    assert [path.name for path in (store.root / "runs").iterdir()] == [store.list_runs()[0].id]
    assert len(computed) == 1 if locked else len(computed) >= 1
