"""Whole runs on workers, written into the store that they share: the same bytes as here."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from contexts import context_of

from merging.base.errors import CheckpointError, MergingError, WorkerError
from merging.cli import exit_codes
from merging.cli.main import main
from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.recipe import Recipe
from merging.study.runs import execute_several as several
from merging.study.runs import run_task
from merging.study.runs.execute_several import RequestedRun, execute_several
from merging.study.runs.run import Run
from merging.study.runs.run_store import Store
from merging.tasks import store_mark
from merging.tasks.context import Context
from merging.tasks.workers import checking
from merging.tasks.workers.workers import Workers

MERGES = ("task_arithmetic", "ties", "weight_averaging", "tsv_m")
NOT_COMPARED = ("seconds", "threads", "created", "work")  # work: bytes that this process had not read before


def wanted(benchmark: Benchmark, *merges: str) -> list[RequestedRun]:
    def recipe(merge: str) -> Recipe:
        return Recipe.build(merge, {}, ("lwptv",), benchmark.pretrained, benchmark.experts, title=f"Own {merge}")

    return [RequestedRun(recipe(merge)) for merge in merges or MERGES]


def ran(benchmark: Benchmark, store: Store, *merges: str, **said: Any) -> list[Run | MergingError]:
    return execute_several(wanted(benchmark, *merges), store, benchmark=benchmark, context=context_of(said), **said)


def temporary(store: Store) -> list[str]:
    return [path.name for path in store.root.rglob("*tmp-*")]


def test_what_is_stored_is_not_asked_for_and_one_failure_does_not_stop_others(
    tiny_benchmark: Benchmark, store: Store, threads: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first,) = ran(tiny_benchmark, store, "ties")
    execute, asked = run_task.execute, list[str]()

    def fail(recipe: Recipe, *said: Any, **more: Any) -> Run:
        asked.append(recipe.merge.key)
        if recipe.merge.key == "weight_averaging":
            raise MergingError("The merged tensor overflows.")
        return execute(recipe, *said, **more)

    monkeypatch.setattr(run_task, "execute", fail)
    found = ran(tiny_benchmark, store, "ties", "weight_averaging", "task_arithmetic", "ties", workers=threads)
    assert sorted(asked) == ["task_arithmetic", "weight_averaging"]
    assert [type(each).__name__ for each in found] == ["Run", "MergingError", "Run", "Run"]
    assert found[0].id == found[3].id == first.id and str(found[1]) == "The merged tensor overflows."  # type: ignore[union-attr]
    monkeypatch.setattr(several, "execute", fail)
    again = ran(tiny_benchmark, store, "weight_averaging", "ties")
    assert [str(again[0]), type(again[1])] == ["The merged tensor overflows.", Run]


def test_a_run_that_cannot_be_planned_is_not_counted(tiny_benchmark: Benchmark, store: Store, threads: Workers) -> None:
    said, (fine,) = list[str](), wanted(tiny_benchmark, "ties")
    each = [RequestedRun(replace(fine.recipe, pretrained="gone.safetensors")), fine]
    context = Context("cpu", lambda now: said.append(now.phase), workers=threads)
    failed, made = execute_several(each, store, benchmark=tiny_benchmark, evaluate=False, context=context)
    assert isinstance(failed, CheckpointError) and isinstance(made, Run) and said[-1] == "Run 1 of 1, on 2 workers"


def test_workers_that_do_not_see_the_store_do_nothing(
    tiny_benchmark: Benchmark, store: Store, threads: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "describe_worker", lambda request: {})
    monkeypatch.setattr("merging.tasks.workers.worker_facts.sees_mark", lambda probe: False)
    monkeypatch.setattr(run_task, "execute", None)
    said = list[str]()
    threads.memory = 1  # a run would not fit
    (made,) = ran(tiny_benchmark, store, "ties", workers=threads, warn=said.append)
    assert isinstance(made, Run) and said[0] == (
        f"The workers do not see the store at {store.root}; put MERGESCOPE_STORE on a file system that all share, or "
        "runs are computed here."
    )
    assert not temporary(store)


def test_a_worker_stops_when_the_asker_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_mark, "CHECK_SECONDS", 0.0)
    with store_mark.write_mark(tmp_path / "store") as mark:
        gone = store_mark.watch_for_end(mark)
        time.sleep(0.01)
        assert not gone()
    assert gone()
    with pytest.raises(WorkerError, match=rf"^The workers do not see the store at {tmp_path / 'store'}; put MERGE"):
        store_mark.watch_for_end(mark)


# What a worker sees


# The command


@pytest.mark.full
def test_the_command_takes_several_recipes(
    tiny_benchmark: Benchmark, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(tiny_benchmark.folder))
    files = [tmp_path / f"{merge}.yaml" for merge in ("ties", "weight_averaging")]
    for file, one in zip(files, wanted(tiny_benchmark, "ties", "weight_averaging"), strict=True):
        file.write_text(one.recipe.to_yaml(), "utf-8")
    broken = tmp_path / "broken.yaml"
    broken.write_text(files[0].read_text("utf-8").replace("digits.safetensors", "gone.safetensors"), "utf-8")
    words = ["run", str(files[0]), str(broken), str(files[1]), "--store", str(store.root), "--device", "cpu"]
    assert main([*words, "--workers", "2", "--json"]) == exit_codes.FAILED
    said = capsys.readouterr()
    told = json.loads(said.out)
    assert [each["title"] for each in told["runs"]] == ["Own ties", "Own weight_averaging"]
    assert [*told["failed"]] == [str(broken)] and f"{broken}: " in said.err and "Run 3 of" not in said.err
    assert main([*words[:2], *words[3:]]) == exit_codes.DONE
    assert main([*words, "--out", str(tmp_path / "model")]) == exit_codes.USAGE
    out = capsys.readouterr()
    assert out.out.count("Own ties: run ") == 1 and "--out exports one recipe" in out.err
