"""Measurements whose trials workers do: the same bytes as here, and nothing lost when one dies."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from contexts import context_of

from merging.analysis.measure import measure
from merging.analysis.measurements import exemplar_sensitivity, task_counts
from merging.analysis.registry import kind
from merging.analysis.stored import entry_name
from merging.analysis.subject import MeasurementResult, PlannedTrial, TrialInputs
from merging.analysis.trials import merges, spread, trial_task
from merging.benchmarks.benchmark import Benchmark
from merging.cli import exit_codes
from merging.cli.main import main
from merging.errors import Cancelled, MergingError, WorkerError, WorkersGone
from merging.jobs.runner import Runner
from merging.recipes.recipe import Recipe
from merging.runs.execute import execute
from merging.runs.store import Store
from merging.tasks.context import Context
from merging.tasks.kinds import TRIAL
from merging.tasks.worker import answered, call, written
from merging.workers.workers import Workers

KEYS = ("exemplars", "drm_ablations", "task_counts")


@pytest.fixture(scope="module")
def here(tiny_benchmark: Benchmark, tmp_path_factory: pytest.TempPathFactory, smaller_measurements: None) -> Store:
    """A store with measurements that no worker did."""
    store = Store(tmp_path_factory.mktemp("here"), libraries=())
    for key in KEYS:
        measured(key, store, tiny_benchmark)
    return store


def measured(key: str, store: Store, benchmark: Benchmark, workers: Workers | None = None, **said: Any) -> Any:
    return measure(key, store, benchmark, context=replace(context_of(said), workers=workers or ""), **said)


def bytes_of(store: Store) -> dict[str, bytes]:
    """Every file of every measurement, but what says when it was made."""
    folder = store.root / "measured"
    paths = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".json"]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


@pytest.mark.usefixtures("here")
def test_an_error_of_ours_is_raised_once(
    tiny_benchmark: Benchmark, store: Store, threads: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    merge, begun = task_counts.merge, list[tuple[str, tuple[str, ...]]]()

    def fail(recipe: Recipe, *said: Any) -> Any:
        begun.append((recipe.merge.key, tuple(name for name, _ in recipe.experts)))
        if recipe.merge.key == "drm" and len(recipe.experts) == 3:
            raise MergingError("The merged tensor overflows.")
        return merge(recipe, *said)

    monkeypatch.setattr(task_counts, "merge", fail)
    with pytest.raises(MergingError, match=r"^The merged tensor overflows\.$"):
        measured("task_counts", store, tiny_benchmark, threads)
    assert len(begun[0][1]) == 4, "what takes longest is begun first"
    assert len(begun) == len(set(begun)), "an error is an answer: no trial is begun twice"
    assert not bytes_of(store)


@pytest.mark.usefixtures("here")
def test_a_trial_that_is_too_large_is_told_before(
    tiny_benchmark: Benchmark, store: Store, threads: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads.memory, begun = 1000, list[str]()
    monkeypatch.setattr(trial_task, "computation", begun.append)
    for key in KEYS:
        with pytest.raises(WorkerError, match=r"^A trial needs about .* of memory; the workers have 1 kB each\. Start"):
            measured(key, store, tiny_benchmark, threads)
    monkeypatch.setattr(merges, "free_memory", lambda: 1000)
    with pytest.raises(MergingError, match=r"^A trial needs about .* of memory; 1 kB are free\.$"):
        measured("exemplars", store, tiny_benchmark)
    assert not begun and not bytes_of(store)


@pytest.mark.parametrize("later", ["same", "another"])
def test_when_all_workers_are_gone_what_they_answered_is_kept_for_workers_of_their_kind(
    here: Store, tiny_benchmark: Benchmark, store: Store, monkeypatch: pytest.MonkeyPatch, later: str
) -> None:
    gone, begun, merge = threading.Event(), list[str](), task_counts.merge

    def counted(recipe: Recipe, *said: Any) -> Any:
        begun.append(recipe.title)
        return merge(recipe, *said)

    def third(progress: Any) -> None:
        if progress.phase.startswith("Trial 3 "):
            gone.set()
            first.shutdown(wait=False, cancel_futures=True)

    monkeypatch.setattr(task_counts, "merge", counted)
    monkeypatch.setattr("merging.workers.fan_out.GONE", 0.1)
    with ThreadPoolExecutor(2) as first, ThreadPoolExecutor(2) as second:
        told = {"lost": (RuntimeError,), "present": lambda: not gone.is_set(), "kind": "same"}
        with pytest.raises(WorkersGone, match=r"are gone\. [345] of 26 trials are kept\. Resume when they are back"):
            measured("task_counts", store, tiny_benchmark, Workers(first, 2, **told), progress=third)  # type: ignore[arg-type]
        assert not bytes_of(store)
        before, said = len(begun), list[str]()
        measured(
            "task_counts", store, tiny_benchmark, Workers(second, 2, kind=later),
            progress=lambda now: said.append(f"{now.phase} {now.fraction:.0%}"),
        )  # fmt: skip
    assert bytes_of(store).items() <= bytes_of(here).items()
    merged = len(begun) - before
    assert said[-1] == "Trial 26 of 26, on 2 workers 100%"
    assert said[0].startswith("Trial 0 of 26") == (later == "another") and (merged < 21) == (later == "same")
    assert not list((store.root / "trials").iterdir())


def test_cancel_does_not_wait_for_a_trial(
    tiny_benchmark: Benchmark, threads: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, release, finished = threading.Event(), threading.Event(), list[bool]()

    def long(*_said: Any) -> dict[str, Any]:
        begun.set()
        finished.append(release.wait(5))
        return {}

    monkeypatch.setattr(trial_task, "computation", lambda key: long)
    trials = spread.Trials("drm_ablations", TrialInputs(tiny_benchmark), Context("cpu", cancel=begun, workers=threads))
    with pytest.raises(Cancelled):
        trials.answers([PlannedTrial("a", {})])
    assert not finished
    release.set()


def test_answers_come_in_the_order_of_the_plan(tiny_benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, fractions = list[str](), list[float]()

    def computed(_inputs: TrialInputs, asked: Mapping[str, Any], _context: Context) -> dict[str, Any]:
        begun.append(asked["say"])
        return {"said": asked["say"], "third": 1 / 3}

    monkeypatch.setattr(trial_task, "computation", lambda key: computed)
    monkeypatch.setattr(trial_task, "in_room", lambda device, compute: (compute(device), ("It ran out.",)))
    one = Workers(ThreadPoolExecutor(1), 1)  # of two, either may be the first to begin
    warned = list[str]()
    context = Context("cpu", lambda now: fractions.append(now.fraction), warn=warned.append, workers=one)
    trials = spread.Trials("drm_ablations", TrialInputs(tiny_benchmark), context)
    planned = [PlannedTrial(name, {"say": name}, weight) for name, weight in {"a": 1.0, "b": 5.0, "c": 2.0}.items()]
    assert trials.answers(planned) == [{"said": name, "third": 1 / 3} for name in "abc"]
    assert begun == ["b", "c", "a"] and fractions[-1] == 1 and not warned
    assert trials.about() == {"device": "CPU"}
    assert trials.noted(MeasurementResult({}, {"n": 1})).notes == {"n": 1, "memory": "It ran out."}


# What a worker sees


def asked(benchmark: Benchmark, task: str = "digits") -> dict[str, Any]:
    trials = spread.Trials("exemplars", TrialInputs(benchmark), Context("cpu"))
    candidate = exemplar_sensitivity.CANDIDATES[0]
    trial = exemplar_sensitivity.DrawnMerge(candidate, 2, 0).planned(benchmark)
    return trials.request(PlannedTrial("own", {"own": task}) if task else trial)


def test_a_worker_refuses_another_name_and_names_a_missing_file(tiny_benchmark: Benchmark, copied: Benchmark) -> None:
    request = asked(copied)
    (row,) = answered(call(TRIAL, written(request)))["trial"]["rows"]
    assert row[0] == "digits"
    victim = copied.folder / "models" / "digits.safetensors"
    shutil.copy(copied.folder / "models" / "circles.safetensors", victim.with_suffix(".new"))
    victim.with_suffix(".new").replace(victim)
    with pytest.raises(WorkerError, match=r"sees other checkpoints or images .* for this trial"):
        answered(call(TRIAL, written(request)))
    assert answered(call(TRIAL, written(asked(copied))))["trial"]["rows"] != [row], "files are opened anew"
    images = copied.folder / "data" / "digits.npz"
    request = asked(copied)
    shutil.copy(copied.folder / "data" / "circles.npz", images)
    answered(call(TRIAL, written(asked(tiny_benchmark))))  # another benchmark: the copy is opened anew after it
    with pytest.raises(WorkerError, match="sees other checkpoints or images"):
        answered(call(TRIAL, written(request)))
    assert answered(call(TRIAL, written(asked(Benchmark.load(copied.folder)))))
    shutil.copy(copied.folder / "data" / "digits.npz", copied.folder / "data" / "flags.npz")
    assert answered(call(TRIAL, written(asked(Benchmark.load(copied.folder))))), "the benchmark is opened anew"
    victim.unlink()
    with pytest.raises(
        WorkerError, match=rf"does not see the expert digits in {copied.folder}; set MERGESCOPE_BENCHMARK there"
    ):
        answered(call(TRIAL, written(request)))
    with pytest.raises(WorkerError, match="Feature drift does not consist of trials"):
        answered(call(TRIAL, written(request | {"measurement": "drift"})))


def test_requests_and_answers_are_small(tiny_benchmark: Benchmark) -> None:
    request = written(asked(tiny_benchmark, ""))
    assert len(request) < 10_000 and len(call(TRIAL, request)) < 10_000
    assert str(tiny_benchmark.folder / "models").encode() not in request, "a worker may have the benchmark elsewhere"


# The command, and the job of the app


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


@pytest.mark.slow
def test_a_job_measures_on_the_workers_of_its_server(
    tiny_benchmark: Benchmark, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"WORKERS": "2", "BENCHMARK": str(tiny_benchmark.folder)}.items():
        monkeypatch.setenv(f"MERGESCOPE_{name}", value)
    runner = Runner(store, device="cpu")
    phases, end = set[str](), time.monotonic() + 60
    job = runner.measure("task_counts")
    while job.live and time.monotonic() < end:
        time.sleep(0.02)
        job = runner.get(job.id)
        phases.add(job.phase)
    runner.close()
    assert job.state == "done", job.error
    assert [phase for phase in phases if phase.endswith(" of 92, on 2 workers")]


def test_what_another_process_measures_is_not_measured_at_the_same_time(
    here: Store, tiny_benchmark: Benchmark, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_counts, "merge", None)
    name = entry_name(kind("task_counts"), store, tiny_benchmark, "")
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
