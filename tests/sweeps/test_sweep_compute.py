"""Computing sweeps: points are kept one by one, whatever is paused, killed, damaged or fails."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from pretend_device import NAME, pretend_device
from small_sweeps import RATIO, names, read_facts, read_points, recipe, run, sweep
from stand_in_jobs import wait_until

import merging
from merging.base.errors import MergingError
from merging.cli import exit_codes
from merging.cli.main import main
from merging.engine import run as engine
from merging.engine.capture.data_files import GradientMeans
from merging.images.benchmarks.benchmark import Benchmark
from merging.models.formats.model_sources import open_checkpoint
from merging.study.run_queue import RunQueue
from merging.study.runs.estimate import MERGING, estimate_run
from merging.study.runs.execute import execute
from merging.study.runs.run_store import Store
from merging.study.sweeps import points, sweep_storage, sweep_tables
from merging.study.sweeps import sweep_session as sweep_compute
from merging.study.sweeps.sweep import LINE, Axis
from merging.tasks.context import Context
from merging.tasks.queue.job_kinds import SWEEP
from merging.tasks.queue.job_records import JobFiles, State

ON_CPU = "PRETEND ran out of memory even with small pieces, so the CPU computed this."


# Stopping and going on


def test_a_paused_sweep_goes_on_where_it_was(tiny_benchmark: Benchmark, store: Store) -> None:
    made = sweep(tiny_benchmark, "task_arithmetic", "ties")
    asked = iter(range(99))
    assert run(made, store, tiny_benchmark, pause=lambda: next(asked) >= 2) == sweep_compute.SweepOutcome(2, 6, True)
    first = {name: (points.points_folder(store) / name).stat().st_mtime_ns for name in names(store)}
    said: list[str] = []
    run(made, store, tiny_benchmark, progress=lambda progress: said.append(progress.phase))
    assert len(names(store)) == 6
    assert {about["capability"] for about in read_facts(store)} == {torch.backends.cpu.get_cpu_capability()}
    assert [times["threads"] for times in points.read_latest_times(store)] == [1] * 6
    assert all((points.points_folder(store) / name).stat().st_mtime_ns == time_ for name, time_ in first.items())
    assert list(dict.fromkeys(said)) == [f"Point {number} of 6" for number in (3, 4, 5, 6)]


def test_a_failing_point_does_not_stop_the_others(
    tiny_benchmark: Benchmark, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, compute = sweep(tiny_benchmark), sweep_compute.SweepSession.compute

    def fail(self: Any, planned: sweep_compute.NamedPoint, tell: Any) -> Any:
        if planned.point.values == (0.5,):
            raise MergingError("The merged tensor overflows.")
        return compute(self, planned, tell)

    monkeypatch.setattr(sweep_compute.SweepSession, "compute", fail)
    with pytest.raises(MergingError, match=r"1 of 3 points .* lwptv.prune_ratio 0.5: The merged tensor overflows"):
        run(made, store, tiny_benchmark)
    assert len(names(store)) == 2


def test_the_budget_learns_from_points(tiny_benchmark: Benchmark, store: Store) -> None:
    made = sweep(tiny_benchmark, images=8)
    guess = sweep_tables.estimate_cost(made, store, tiny_benchmark)
    assert (guess.points, guess.stored, guess.known) == (3, 0, False) and guess.seconds > 0
    asked = iter(range(99))
    run(made, store, tiny_benchmark, pause=lambda: next(asked) >= 1)
    learned = sweep_tables.estimate_cost(made, store, tiny_benchmark)
    (took,) = (facts["seconds"] for facts in points.read_latest_times(store))
    assert (learned.stored, learned.known) == (1, True)
    assert learned.seconds_per_point == pytest.approx(sum(took.values()), rel=0.02)


def test_the_cost_of_a_line_has_each_merge_once(tiny_benchmark: Benchmark, store: Store) -> None:
    lines = [sweep(tiny_benchmark, kind=LINE, axes=(Axis("alpha", alphas),)) for alphas in ((0.0, 0.5), (0.0, 0.5, 1))]
    experts = replace(lines[0], through=("circles", "digits"))
    run(experts, store, tiny_benchmark)  # from now on the seconds of sums and evaluations are known
    opened = sweep_compute.SweepSession(tiny_benchmark, lines[0].sample).open_checkpoints(lines[0].recipes[0])

    def estimate_merge() -> float:
        runs = store.list_runs()
        merge = estimate_run(opened, tiny_benchmark, runs, "cpu")
        few, more = (sweep_tables.estimate_cost(line, store, tiny_benchmark, device="cpu") for line in lines)
        assert few.known == more.known == bool(runs)
        seconds = few.seconds - sweep_tables.STARTUP_SECONDS - 2 * (more.seconds - few.seconds)
        assert seconds == pytest.approx(merge.phases[MERGING])
        return seconds

    default = estimate_merge()
    execute(lines[0].recipes[0], store, benchmark=tiny_benchmark, context=Context("cpu"))
    assert estimate_merge() != default


def test_models_that_do_not_fit_the_benchmark_are_refused(tiny_benchmark: Benchmark, store: Store) -> None:
    with pytest.raises(MergingError, match="cannot be evaluated on the benchmark"):
        run(sweep(tiny_benchmark), store, replace(tiny_benchmark, image_size=32))


# The command, and the job that runs it


@pytest.mark.full
def test_the_command_describes_pauses_and_goes_on(
    tiny_benchmark: Benchmark, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(tiny_benchmark.folder))
    file, flag = tmp_path / "recipe.yaml", tmp_path / "pause"
    file.write_text(recipe(tiny_benchmark).to_yaml())
    flag.touch()
    common = ["sweep", str(file), "--vary", "lwptv.prune_ratio=0,0.5", "--store", str(store.root), "--device", "cpu"]
    assert main([*common, "--pause-file", str(flag)]) == exit_codes.PAUSED
    said = capsys.readouterr().out
    assert "2 points, 0 of them stored" in said and "Paused at 0 of 2 points" in said
    assert main([*common, "--json"]) == exit_codes.DONE
    told = json.loads(capsys.readouterr().out)
    assert [point["x"] for point in told["points"]] == [0.0, 0.5] and len(told["tasks"]) == 12
    assert main(["sweep", "--stored", told["id"], "--store", str(store.root)]) == exit_codes.DONE
    assert "LwPTV: prune ratio" in capsys.readouterr().out
    assert main([*common[:2], "--line", "0,1", "--images", "4", *common[4:]]) == exit_codes.DONE
    assert (
        main([*common[:2], "--plane", "0,1", "--through", "pretrained,circles,digits", *common[4:]]) == exit_codes.DONE
    )
    capsys.readouterr()
    assert main(["sweep"]) == exit_codes.USAGE
    assert main([*common[:2], "--vary", "lwptv.prune_ratio=0,2", *common[4:]]) == exit_codes.FAILED
    assert capsys.readouterr().err.endswith("lwptv.prune_ratio must be a number in [0, 1]. Got 2 instead.\n")


@pytest.fixture
def runner(store: Store, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(tiny_folder))
    made = RunQueue(store, device="cpu")
    yield made
    made.close()


@pytest.mark.full
def test_a_job_computes_a_sweep_and_pauses(
    runner: RunQueue, store: Store, tiny_benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = sweep(tiny_benchmark, axes=(Axis(RATIO.target, tuple(round(i / 90, 4) for i in range(90))),))
    sweep_storage.store_sweep(made, store)
    job = runner.submit_sweep(made.id, "mine")
    assert (job.title, job.kind, job.subject) == ("Sweep: mine", SWEEP, made.id)
    assert runner.submit_sweep(made.id, "mine").submitted == job.submitted
    wait_until(lambda: points.points_folder(store).is_dir() and len(names(store)) >= 2)
    runner.pause(job.id)
    wait_until(lambda: not runner.get(job.id).is_live)
    assert runner.get(job.id).state == State.PAUSED
    assert 2 <= len(names(store)) < 90
    wait = [sys.executable, "-c", "import time; time.sleep(9)"]
    monkeypatch.setattr(JobFiles, "start", lambda *_: subprocess.Popen(wait, start_new_session=True))
    other = replace(made, seed=1)
    sweep_storage.store_sweep(other, store)
    runner.submit_sweep(made.id, "mine")
    waiting = runner.submit_sweep(other.id, "other")
    runner.pause(waiting.id)
    assert runner.get(waiting.id).state == State.PAUSED
    runner.cancel(job.id)
    wait_until(lambda: runner.get(job.id).state == State.CANCELLED)


# Accelerators


@pytest.mark.parametrize("limit,device,words", [(1 << 30, "PRETEND", []), (1 << 11, "CPU", [ON_CPU])])
def test_a_point_names_the_device_that_computed_it_and_the_sweep_warns_once(
    tiny_benchmark: Benchmark, store: Store, limit: int, device: str, words: list[str]
) -> None:
    made, told = sweep(tiny_benchmark, axes=(Axis("lwptv.prune_ratio", (0.0, 0.5)),)), list[str]()
    with pretend_device(largest=limit):
        sweep_compute.run_sweep(made, store, tiny_benchmark, context=Context(device=NAME, warn=told.append))
    assert [point.device for point in read_points(made, store, tiny_benchmark).values()] == [device] * 2
    assert told == words
    assert all(facts.get("warnings", []) == words for facts in read_facts(store))


def test_every_point_has_the_warnings_of_its_merge(tiny_benchmark: Benchmark, monkeypatch: Any) -> None:
    merge, answers = engine.run_recipe, []
    monkeypatch.setattr(
        engine, "run_recipe", lambda *a, **o: answers.append(1) or replace(merge(*a, **o), warnings=("!",))
    )
    line = sweep(tiny_benchmark, kind=LINE, axes=(Axis("alpha", (0.25, 0.5)),))
    for made, merges in ((line, 1), (sweep(tiny_benchmark), 3)):
        answers.clear()
        session = sweep_compute.SweepSession(tiny_benchmark, made.sample, Context("cpu"))
        facts = [session.compute(session.plan_point(place), session.context)[1] for place in made.points]
        assert len(answers) == merges and all(about["warnings"] == ["!"] for about in facts)


def test_the_cost_is_that_of_the_device(tiny_benchmark: Benchmark, store: Store) -> None:
    made = sweep(tiny_benchmark)
    run(made, store, tiny_benchmark)
    more = replace(made, axes=(Axis("lwptv.prune_ratio", (0.0, 0.25)),))
    assert sweep_tables.estimate_cost(more, store, tiny_benchmark, device="cpu").known
    with pretend_device():
        assert not sweep_tables.estimate_cost(more, store, tiny_benchmark, device=NAME).known, (
            "points of the CPU say nothing of it"
        )


# Files of data


def test_points_read_the_files_of_gradients_that_a_recipe_names(
    tiny_benchmark: Benchmark, store: Store, tmp_path: Path
) -> None:
    draw, files = torch.Generator().manual_seed(0), dict[str, str]()
    for name, path in tiny_benchmark.experts.items():
        expert = open_checkpoint(path)
        means = {key: torch.rand(info.shape, generator=draw) for key, info in expert.infos.items()}
        files[name] = str(tmp_path / f"{name}.safetensors")
        merging.save_gradients(Path(files[name]), GradientMeans(means, "fisher", 30, expert.digest))
    made = sweep(tiny_benchmark, axes=(Axis("experts", (2.0, 3.0)),))
    made = replace(made, recipes=(recipe(tiny_benchmark, "fisher", edits=[], gradients=files),))
    run(made, store, tiny_benchmark)
    found = read_points(made, store, tiny_benchmark)
    for planned in sweep_compute.plan_sweep(made, tiny_benchmark):
        stored = execute(planned.point.recipe, Store(tmp_path / "runs", libraries=()), benchmark=tiny_benchmark)
        assert stored.id == planned.run_id
        scores = stored.scores[stored.scores["split"] == made.split]
        assert list(found[planned.name].table["accuracy"]) == list(scores["accuracy"])
