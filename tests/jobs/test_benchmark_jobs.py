"""Jobs on several benchmarks: when a run is done, what a child is told, what a killed build leaves."""

from __future__ import annotations

from pathlib import Path

import pytest
from plain_recipes import plain_recipe
from stand_in_jobs import SLEEP, child_command, make_abandoned_folder

from merging.base.errors import StoreError
from merging.base.files import processes
from merging.study.runs.execute import execute
from merging.study.runs.run_store import Store
from merging.tasks.context import Context
from merging.tasks.queue import job_records
from merging.tasks.queue.cleanup import sweep_up
from merging.tasks.queue.job_records import State


def test_a_run_is_not_done_before_it_is_scored_on_the_benchmark(
    runner, store, child, tiny_benchmark, other_benchmark
) -> None:
    child(SLEEP)
    execute(plain_recipe(tiny_benchmark), store, benchmark=tiny_benchmark, context=Context(device="cpu"))
    assert runner.submit(plain_recipe(tiny_benchmark), benchmark=tiny_benchmark).state == State.DONE
    job = runner.submit(plain_recipe(tiny_benchmark), benchmark=other_benchmark)
    assert job.is_live and job.benchmark == str(other_benchmark.folder)
    assert runner.submit(plain_recipe(tiny_benchmark), benchmark=other_benchmark).id == job.id
    runner.submit_measurement("drift", job.id, str(other_benchmark.folder))
    for ask in (
        lambda: runner.submit_measurement("drift", job.id, str(tiny_benchmark.folder)),
        lambda: runner.submit(plain_recipe(tiny_benchmark), benchmark=tiny_benchmark),
    ):
        with pytest.raises(StoreError, match="on another benchmark"):
            ask()


def test_a_job_works_on_its_benchmark(store, monkeypatch, other_benchmark) -> None:
    def told(benchmark: str) -> str | None:
        """What the child of a job on that benchmark is told to work on."""
        files = job_records.JobFiles(store.root / "jobs", "a" * 12)
        files.remove()
        files.create("merge: ties\n", title="A job", base=Path("/"), subject="a" * 12, benchmark=benchmark)
        return child_command(files, store, monkeypatch)[1].get("MERGESCOPE_BENCHMARK")

    monkeypatch.delenv("MERGESCOPE_BENCHMARK", raising=False)
    assert told("") is None
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", "elsewhere")
    assert told(str(other_benchmark.folder)) == str(other_benchmark.folder)


def test_what_a_killed_build_leaves_is_removed(tmp_path: Path) -> None:
    store, out = Store(tmp_path / "store", libraries=()), tmp_path / "benchmarks" / "mine"
    left = make_abandoned_folder(out.parent)
    words = ("benchmark", "make", str(out), "--from", "x.yaml")
    owner = processes.NO_PROCESS
    sweep_up(store, [job_records.Record(State.RUNNING, "", "", False, 0.0, owner, kind="data", words=words)])
    assert not left.exists()


def test_what_a_killed_experiment_leaves_is_removed(tmp_path: Path) -> None:
    store = Store(tmp_path / "store", libraries=())
    left = make_abandoned_folder(store.root / "benchmarks")
    words = ("published", "run", "smoke", "--yes")
    owner = processes.NO_PROCESS
    sweep_up(
        store,
        [job_records.Record(State.RUNNING, "", "", False, 0.0, owner, kind="published", subject="smoke", words=words)],
    )
    assert not left.exists()
