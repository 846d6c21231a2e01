"""Computing tunings on the tiny benchmark: their points are points of sweeps, and their traces survive a kill."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from small_sweeps import names, recipe
from small_sweeps import run as run_sweep
from stand_in_jobs import wait_until

from merging.base.errors import MergingError, ParameterError, StoreError
from merging.cli import exit_codes
from merging.cli.main import main
from merging.images.benchmarks.benchmark import Benchmark
from merging.study.runs.run_store import Store
from merging.study.sweeps.sweep import Axis, Sweep
from merging.study.sweeps.sweep_session import SweepOutcome, SweepSession
from merging.study.tuning import tuning as tunings
from merging.study.tuning import tuning_session
from merging.study.tuning.searches import GRID, SEARCHES, TUNE
from merging.study.tuning.tuning import Tuning
from merging.study.tuning.tuning_session import Trial, TuningSession, TuningTrace, find_best, run_tuning
from merging.study.tuning.tuning_tables import (
    best_table,
    dimension_table,
    estimate_tuning,
    importance_table,
    trial_table,
)
from merging.tasks.context import Context
from merging.tasks.workers.workers import Workers

SPACE = (("lwptv.prune_ratio", ""), ("task_arithmetic.scaling", "0:1.5"))


def make_tuning(benchmark: Benchmark, **said: Any) -> Tuning:
    return Tuning(**{"recipe": recipe(benchmark), "space": SPACE, "points": 6, "batch": 2, "images": 6} | said)


def compute(tuning: Tuning, store: Store, benchmark: Benchmark, **said: Any) -> tuple[SweepOutcome, TuningTrace]:
    outcome = run_tuning(tuning, store, benchmark, context=Context(warn=lambda sentence: None, **said))
    return outcome, TuningSession(tuning, store, benchmark).read()


def plain(trace: TuningTrace) -> list[Any]:
    """The trace without what depends on the machine's clock."""
    trials = [*trace.trials, *trace.reported.values()]
    return [
        (trial.search, trial.number, trial.values, trial.planned and trial.planned.name, trial.scores(("in", "out")))
        for trial in trials
    ]


@pytest.mark.full
def test_all_searches_have_the_budget_and_the_best_are_reported(tiny_benchmark: Benchmark, store: Store) -> None:
    outcome, trace = compute(make_tuning(tiny_benchmark), store, tiny_benchmark)
    assert outcome == SweepOutcome(18, 18, False) and trace.complete
    assert trace.count_trials() == dict.fromkeys(SEARCHES, 6)
    assert len(names(store)) == len({trial.planned.name for trial in [*trace.trials, *trace.reported.values()]})
    table, best = trial_table(trace), best_table(trace, tiny_benchmark)
    for search, rows in table.groupby("search"):
        (row,) = best[best["search"] == search].to_dict("records")
        assert row["chosen"] == rows["value"].max() == rows["best"].iloc[-1]
        assert row["trial"] == rows.loc[rows["value"].idxmax(), "trial"]
        assert row["gap"] == pytest.approx(row["chosen"] - row["value"])
        assert row["gap_low"] <= row["gap"] <= row["gap_high"] and row["low"] <= row["value"] <= row["high"]
    reported = trace.reported[TUNE]
    assert {*reported.point.table["split"]} == {"reporting"} and reported.point.images > trace.trials[0].point.images
    assert importance_table(trace)["importance"].sum() == pytest.approx(1)
    assert dimension_table(trace)["x"].between(0, 1).all() and len(dimension_table(trace)) == 2 * 18


@pytest.mark.full
def test_points_are_shared_with_sweeps(tiny_benchmark: Benchmark, store: Store) -> None:
    tuning = make_tuning(tiny_benchmark, points=9)
    grid = Sweep(
        recipes=(recipe(tiny_benchmark),), images=6,
        axes=(Axis("lwptv.prune_ratio", (0.0, 0.5, 1.0)), Axis("task_arithmetic.scaling", (0.0, 0.75, 1.5))),
    )  # fmt: skip
    run_sweep(grid, store, tiny_benchmark)
    trace = TuningSession(tuning, store, tiny_benchmark).read()
    assert sum(trial.point is not None for trial in trace.trials if trial.search == GRID) == 9
    assert estimate_tuning(TuningSession(tuning, store, tiny_benchmark)).stored == 9


@pytest.mark.full
def test_a_paused_tuning_has_the_trace_of_an_unbroken_one(
    tiny_benchmark: Benchmark, store: Store, tmp_path: Path
) -> None:
    tuning = make_tuning(tiny_benchmark, points=4)
    for stop in (1, 2, 7):
        asked = iter(range(99))
        outcome, trace = compute(
            tuning, store, tiny_benchmark, pause=lambda asked=asked, stop=stop: next(asked) >= stop
        )
        assert outcome.paused and not trace.complete
    _, resumed = compute(tuning, store, tiny_benchmark)
    _, unbroken = compute(tuning, Store(tmp_path / "other", libraries=()), tiny_benchmark)
    assert resumed.complete and plain(resumed) == plain(unbroken)
    _, other = compute(replace(tuning, seed=1), store, tiny_benchmark)
    assert plain(other) != plain(unbroken)


@pytest.mark.full
def test_workers_give_the_same_trace(tiny_benchmark: Benchmark, store: Store, tmp_path: Path) -> None:
    tuning = make_tuning(tiny_benchmark, points=4)
    _, here = compute(tuning, store, tiny_benchmark)
    other = Store(tmp_path / "other", libraries=())
    with ThreadPoolExecutor(2) as pool:
        _, there = compute(tuning, other, tiny_benchmark, workers=Workers(pool, 2))
    assert plain(here) == plain(there)


@pytest.mark.full
def test_a_budget_of_minutes_is_kept_and_remembered(
    tiny_benchmark: Benchmark, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuning = make_tuning(tiny_benchmark, points=0, minutes=1)  # 20 seconds for the search
    clock = iter(range(0, 10_000, 7))
    monkeypatch.setattr(tuning_session, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    outcome, trace = compute(tuning, store, tiny_benchmark)
    assert trace.count_trials() == dict.fromkeys(SEARCHES, 6)  # three batches of two, of seven seconds each
    assert outcome == SweepOutcome(18, 18, False) and trace.complete
    assert tunings.read_spent(store, tuning.id) == (21.0, 6)
    assert plain(compute(tuning, store, tiny_benchmark)[1]) == plain(trace)


@pytest.mark.full
def test_a_front_of_two_objectives(tiny_benchmark: Benchmark, store: Store) -> None:
    tuning = make_tuning(tiny_benchmark, objectives=("in", "out"))
    _, trace = compute(tuning, store, tiny_benchmark)
    table = trial_table(trace)
    pairs = list(zip(table["in"], table["out"], strict=True))
    for pair, on_front in zip(pairs, table["on_front"], strict=True):
        better = [other for other in pairs if other != pair and other[0] >= pair[0] and other[1] >= pair[1]]
        assert on_front == (not better)
    assert 0 < table["on_front"].sum() < len(table)
    assert len(best_table(trace, tiny_benchmark)) == 6 and {*importance_table(trace)["objective"]} == {"in", "out"}


def test_the_worst_task(tiny_benchmark: Benchmark, store: Store) -> None:
    _, trace = compute(make_tuning(tiny_benchmark, objectives=("worst",), points=2), store, tiny_benchmark)
    for trial in trace.trials:
        assert trial.score("worst") == trial.point.scores["accuracy"].min()
    assert not best_table(trace, tiny_benchmark)["low"].isna().any()


def test_chains_that_are_invalid_have_no_score(tiny_benchmark: Benchmark, store: Store) -> None:
    trial = Trial(TUNE, 1, {}, None)
    assert math.isnan(trial.score("h")) and trial.scores(("h",)) is None and find_best([trial], ("h",)) == {}


def test_what_the_benchmark_or_the_models_lack_is_refused(tiny_benchmark: Benchmark, store: Store) -> None:
    inside = replace(
        tiny_benchmark, tasks=tuple(task for task in tiny_benchmark.tasks if task.key in tiny_benchmark.experts)
    )
    for objective in ("out", "h"):
        with pytest.raises(ParameterError, match=f"The objective {objective} .* lacks .* take another objective"):
            TuningSession(make_tuning(tiny_benchmark, objectives=(objective,)), store, inside)
    TuningSession(make_tuning(tiny_benchmark, objectives=("worst",)), store, inside)
    with pytest.raises(MergingError, match="block 77: the model has blocks 0 to 1"):
        TuningSession(make_tuning(tiny_benchmark, space=(("coefficients.77", ""),)), store, tiny_benchmark)


def test_a_failing_point_stops_the_tuning(
    tiny_benchmark: Benchmark, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any) -> Any:
        raise MergingError("The merged tensor overflows.")

    monkeypatch.setattr(SweepSession, "compute", fail)
    with pytest.raises(
        MergingError, match=r"could not be computed, so the tuning stops.*: The merged tensor overflows"
    ):
        compute(make_tuning(tiny_benchmark), store, tiny_benchmark)


def test_stored_tunings(tiny_benchmark: Benchmark, store: Store) -> None:
    tuning = make_tuning(tiny_benchmark, title="Mine")
    tunings.store_tuning(tuning, store)
    assert tunings.list_tunings(store) == {tuning.id: tuning}
    path = store.root / "tunings" / f"{tuning.id}.yaml"
    path.write_text(path.read_text().replace("points: 6", "points: 7"))
    assert tunings.list_tunings(store) == {}
    with pytest.raises(StoreError, match="was changed after it was written"):
        tunings.find_tuning(store, tuning.id)
    tunings.delete_tuning(store, tuning.id)
    with pytest.raises(StoreError, match="There is no tuning"):
        tunings.find_tuning(store, tuning.id)


# The command


@pytest.fixture
def call(tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Tunes a recipe of the tiny benchmark."""
    monkeypatch.setenv("MERGESCOPE_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(tiny_folder))
    path = tmp_path / "recipe.yaml"
    path.write_text(recipe(Benchmark.load(tiny_folder)).to_yaml())
    words = [word for pair in SPACE for word in ("--space", "=".join(pair) if pair[1] else pair[0])]
    return lambda *more: main(["tune", str(path), *words, "--images", "6", *more])


@pytest.mark.full
def test_the_command_reports_all_three_searches(call: Callable[..., int], capsys: Any) -> None:
    assert call("--budget", "4", "--json") == exit_codes.DONE
    found = json.loads(capsys.readouterr().out)
    assert [row["search"] for row in found["best"]] == ["tune", "random", "grid"] and len(found["trials"]) == 12
    assert call("--budget", "4") == exit_codes.DONE
    words = capsys.readouterr().out
    assert "12 points, 12 of them stored" in words and "too optimistic by" in words and found["id"] in words
    assert main(["tune", "--stored", found["id"][:6], "--describe"]) == exit_codes.DONE
    assert capsys.readouterr().out.strip() == found["id"]


def test_the_command_pauses_and_refuses(call: Callable[..., int], tmp_path: Path, capsys: Any) -> None:
    (pause := tmp_path / "pause").touch()
    assert call("--budget", "4", "--pause-file", str(pause)) == exit_codes.PAUSED
    assert "continues the tuning" in capsys.readouterr().out
    assert call("--budget", "soon") == exit_codes.USAGE
    assert "A budget is a number of points, or minutes such as 30min; got 'soon'." in capsys.readouterr().err
    assert main(["tune"]) == exit_codes.USAGE
    assert "Name a recipe" in capsys.readouterr().err


@pytest.mark.full
def test_a_killed_command_has_the_trace_of_an_unbroken_one(
    call: Callable[..., int], tiny_benchmark: Benchmark, tmp_path: Path
) -> None:
    """The command is killed while it computes, and then started again."""
    assert call("--budget", "12", "--describe") == exit_codes.DONE
    store = Store(tmp_path / "store", libraries=())
    (tuning,) = tunings.list_tunings(store).values()
    words = [sys.executable, "-m", "merging", "tune", "--stored", tuning.id]
    for stored in (3, 7):
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(os.environ))
        wait_until(lambda least=stored: len(names(store)) >= least)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        assert not TuningSession(tuning, store, tiny_benchmark).read().complete
    assert main(["tune", "--stored", tuning.id]) == exit_codes.DONE
    _, unbroken = compute(tuning, Store(tmp_path / "other", libraries=()), tiny_benchmark)
    resumed = TuningSession(tuning, store, tiny_benchmark).read()
    assert resumed.complete and plain(resumed) == plain(unbroken)
