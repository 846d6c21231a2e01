"""Measurements whose trials workers do: the same bytes as here, and nothing lost when one dies."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from contexts import context_of

from merging.base.errors import MergingError, WorkerError, WorkersGone
from merging.cli import exit_codes
from merging.cli.main import main
from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.recipe import Recipe
from merging.study.analysis.measurement_registry import find_measurement
from merging.study.analysis.measurement_store import entry_name
from merging.study.analysis.measurement_subject import MeasurementResult, PlannedTrial, TrialInputs
from merging.study.measure import measure
from merging.study.runs.execute import execute
from merging.study.runs.run_store import Store
from merging.study.trials import planned_trials, task_counts, trial_merges, trial_task
from merging.tasks.context import Context
from merging.tasks.kinds import TRIAL
from merging.tasks.worker import answer_request, decode_answer, encode_request
from merging.tasks.workers.workers import Workers


@pytest.fixture(scope="module")
def here(tiny_benchmark: Benchmark, tmp_path_factory: pytest.TempPathFactory, smaller_measurements: None) -> Store:
    """A store with a measurement that no worker did."""
    store = Store(tmp_path_factory.mktemp("here"), libraries=())
    measured("task_counts", store, tiny_benchmark)
    return store


def measured(key: str, store: Store, benchmark: Benchmark, workers: Workers | None = None, **said: Any) -> Any:
    return measure(key, store, benchmark, context=replace(context_of(said), workers=workers or ""), **said)


def bytes_of(store: Store) -> dict[str, bytes]:
    """Every file of every measurement, but what says when it was made."""
    folder = store.root / "measured"
    paths = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".json"]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def test_a_trials_name_depends_on_the_version_the_benchmark_the_models_and_the_request(
    tiny_benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_benchmark.open_pretrained()
    other = SimpleNamespace(digest="another", experts=tiny_benchmark.experts)
    names = [planned_trials.make_trial_name("task_counts", tiny_benchmark, [model], {"seed": 0})]
    names += [planned_trials.make_trial_name("exemplars", tiny_benchmark, [model], {"seed": 0})]
    names += [planned_trials.make_trial_name("task_counts", cast(Benchmark, other), [model], {"seed": 0})]
    names += [planned_trials.make_trial_name("task_counts", tiny_benchmark, [model, model], {"seed": 0})]
    names += [planned_trials.make_trial_name("task_counts", tiny_benchmark, [model], {"seed": 1})]
    monkeypatch.setattr(planned_trials, "find_measurement", lambda key: SimpleNamespace(version=10**6))
    names += [planned_trials.make_trial_name("task_counts", tiny_benchmark, [model], {"seed": 0})]
    assert len(set(names)) == 6


def test_a_trial_that_is_too_large_is_told_before(
    tiny_benchmark: Benchmark, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = list[str]()
    monkeypatch.setattr(trial_task, "find_computation", begun.append)
    monkeypatch.setattr(trial_merges, "free_memory", lambda: 1000)
    with pytest.raises(MergingError, match=r"^A trial needs about .* of memory; 1 kB are free\.$"):
        measured("exemplars", store, tiny_benchmark)
    assert not begun and not bytes_of(store)


@pytest.mark.parametrize("later", ["same", "another"])
def test_when_all_workers_are_gone_what_they_answered_is_kept_for_workers_of_their_kind(
    here: Store, tiny_benchmark: Benchmark, store: Store, monkeypatch: pytest.MonkeyPatch, later: str
) -> None:
    gone, begun, merge = threading.Event(), list[str](), task_counts.merge_in_memory

    def counted(recipe: Recipe, *said: Any) -> Any:
        begun.append(recipe.title)
        return merge(recipe, *said)

    def third(progress: Any) -> None:
        if progress.phase.startswith("Trial 3 "):
            gone.set()
            first.shutdown(wait=False, cancel_futures=True)

    monkeypatch.setattr(task_counts, "merge_in_memory", counted)
    monkeypatch.setattr("merging.tasks.workers.fan_out.MAX_SECONDS_WITHOUT_WORKERS", 0.1)
    with ThreadPoolExecutor(2) as first, ThreadPoolExecutor(2) as second:
        told = {"loss_errors": (RuntimeError,), "has_workers": lambda: not gone.is_set(), "kind": "same"}
        with pytest.raises(WorkersGone, match=r"are gone\. [345] of 15 trials are stored\. Resume when they are back"):
            measured("task_counts", store, tiny_benchmark, Workers(first, 2, **told), progress=third)  # type: ignore[arg-type]
        assert not bytes_of(store)
        before, said = len(begun), list[str]()
        measured(
            "task_counts", store, tiny_benchmark, Workers(second, 2, kind=later),
            progress=lambda now: said.append(f"{now.phase} {now.fraction:.0%}"),
        )  # fmt: skip
    assert bytes_of(store).items() <= bytes_of(here).items()
    merged = len(begun) - before
    assert said[-1] == "Trial 15 of 15, on 2 workers 100%"
    assert said[0].startswith("Trial 0 of 15") == (later == "another") and (merged < 11) == (later == "same")
    assert not list((store.root / "trials").iterdir())


def test_answers_come_in_the_order_of_the_plan(tiny_benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, fractions = list[str](), list[float]()

    def computed(_inputs: TrialInputs, asked: Mapping[str, Any], _context: Context) -> dict[str, Any]:
        begun.append(asked["say"])
        return {"said": asked["say"], "third": 1 / 3}

    monkeypatch.setattr(trial_task, "find_computation", lambda key: computed)
    monkeypatch.setattr(trial_task, "retry_on_oom", lambda device, compute: (compute(device), ("It ran out.",)))
    one = Workers(ThreadPoolExecutor(1), 1)  # of two, either may be the first to begin
    warned = list[str]()
    context = Context("cpu", lambda now: fractions.append(now.fraction), warn=warned.append, workers=one)
    trials = planned_trials.Trials("drm_ablations", TrialInputs(tiny_benchmark), context)
    planned = [PlannedTrial(name, {"say": name}, weight) for name, weight in {"a": 1.0, "b": 5.0, "c": 2.0}.items()]
    assert trials.compute_answers(planned) == [{"said": name, "third": 1 / 3} for name in "abc"]
    assert begun == ["b", "c", "a"] and fractions[-1] == 1 and not warned
    assert trials.list_device_facts() == {"device": "CPU"}
    assert trials.add_notes(MeasurementResult({}, {"n": 1})).notes == {"n": 1, "memory": "It ran out."}


# What a worker sees


def test_a_worker_finds_the_experts_in_its_own_benchmark(copied: Benchmark) -> None:
    trials = planned_trials.Trials("exemplars", TrialInputs(copied), Context("cpu"))
    request = trials.make_request(PlannedTrial("own", {"own": "digits"}))
    assert str(copied.folder / "models").encode() not in encode_request(request), (
        "a worker may have the benchmark elsewhere"
    )
    (copied.folder / "models" / "digits.safetensors").unlink()
    words = rf"does not see the expert digits in {copied.folder}; set MERGESCOPE_BENCHMARK there"
    with pytest.raises(WorkerError, match=words):
        decode_answer(answer_request(TRIAL, encode_request(request)))
    with pytest.raises(WorkerError, match="Feature drift does not consist of trials"):
        decode_answer(answer_request(TRIAL, encode_request(request | {"measurement": "drift"})))


# The command


@pytest.mark.usefixtures("here")
def test_what_has_no_trials_or_is_stored_opens_no_workers(tiny_benchmark: Benchmark, here: Store) -> None:
    closed = Context("cpu", workers="no such workers")
    measure("task_counts", here, tiny_benchmark, context=closed)
    recipe = Recipe.build("weight_averaging", {}, [], tiny_benchmark.pretrained, tiny_benchmark.experts)
    run = execute(recipe, here, benchmark=tiny_benchmark, evaluate=False, context=Context(device="cpu"))
    assert measure("pairs", here, tiny_benchmark, run.id, context=closed).key == "pairs"


def test_the_command_refuses_workers_that_there_are_not(
    tiny_benchmark: Benchmark, store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(tiny_benchmark.folder))
    words = ["measure", "task_counts", "--store", str(store.root), "--device", "cpu"]
    assert main([*words, "--workers", "nothing"]) == exit_codes.FAILED
    monkeypatch.setenv("MERGESCOPE_WORKERS", "nobody")
    assert main(words) == exit_codes.FAILED
    assert capsys.readouterr().err.count("module:function") == 2


def test_what_another_process_measures_is_not_measured_at_the_same_time(
    here: Store, tiny_benchmark: Benchmark, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_counts, "merge_in_memory", None)
    name = entry_name(find_measurement("task_counts"), store, tiny_benchmark, "")
    phases, waits = list[str](), threading.Event()

    def said(progress: Any) -> None:
        phases.append(progress.phase)
        waits.set()

    with ThreadPoolExecutor(1) as pool:
        with store.lock(str(name)):
            found = pool.submit(measured, "task_counts", store, tiny_benchmark, progress=said)
            assert waits.wait(30)
            shutil.copytree(here.root / "measured" / str(name), store.root / "measured" / str(name))
        assert found.result(30).key == "task_counts"
    assert set(phases) == {f"Waiting for process {os.getpid()}, which measures the same"}
