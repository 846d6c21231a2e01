"""Sweeps of networks other than CLIP, whose points a program of the user's measures."""

from __future__ import annotations

import json
import shlex
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import other_kinds
import psutil
import pytest

from merging.base.errors import Cancelled, RecipeError
from merging.cli import exit_codes
from merging.cli.main import main
from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.recipe import Recipe
from merging.sharing.evaluator_program import Evaluator
from merging.sharing.evaluator_session import ProgramSession, find_network, run_program_sweep
from merging.study.runs.run_store import Store
from merging.study.score_table import PROGRAM, Score, ScoreTable
from merging.study.sweeps import points
from merging.study.sweeps.points import Point
from merging.study.sweeps.sweep import LINE, Axis, NamedPoint, Sweep
from merging.study.sweeps.sweep_session import SweepOutcome
from merging.study.sweeps.sweep_tables import score_means
from merging.tasks.context import Context

CODE = """
import json, pathlib, sys
from safetensors.numpy import load_file
folder = pathlib.Path(sys.argv[1])
state = load_file(folder / "model.safetensors")
norm = float(sum((value.astype("float64") ** 2).sum() for value in state.values()) ** 0.5)
with open(pathlib.Path(__file__).parent / "calls.txt", "a") as file:
    file.write(f"{folder}\\n")
scores = [("b", "accuracy", norm / (norm + 100)), ("news", "perplexity", norm), ("a", "accuracy", 0.5)]
for task, metric, value in scores:
    print(json.dumps({"task": task, "metric": metric, "value": value, "n": 40}))
"""
VARY = "task_arithmetic.scaling=0.2:0.6:0.2"


@pytest.fixture
def program(tmp_path: Path) -> Evaluator:
    (tmp_path / "my_eval.py").write_text(CODE, "utf-8")
    return Evaluator((sys.executable, str(tmp_path / "my_eval.py")))


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    """Two experts of a T5."""
    return other_kinds.recipe_of_t5(tmp_path / "t5", "ab")


def sweep_of(recipe: Recipe, *values: float) -> Sweep:
    return Sweep(recipes=(recipe,), axes=(Axis("task_arithmetic.scaling", values),))


def calls(tmp_path: Path) -> list[str]:
    path = tmp_path / "calls.txt"
    return path.read_text().splitlines() if path.exists() else []


def session_of(store: Store, sweep: Sweep, program: Evaluator) -> ProgramSession:
    return ProgramSession(Benchmark.load(), sweep.sample, store=store, program=program)


def run(store: Store, sweep: Sweep, program: Evaluator, **said: Any) -> SweepOutcome:
    return run_program_sweep(sweep, session_of(store, sweep, program), context=Context("cpu", **said))


def stored(store: Store, sweep: Sweep, program: Evaluator) -> dict[str, Any]:
    names = [one.name for one in session_of(store, sweep, program).plan_sweep(sweep)]
    return {name: point for name in names if (point := points.find_point(store, name))}


def test_the_command_measures_every_point_and_goes_on(
    recipe: Recipe, program: Evaluator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    path, words = tmp_path / "recipe.yaml", ["--store", str(tmp_path / "store")]
    path.write_text(recipe.to_yaml(), "utf-8")
    monkeypatch.delenv("MERGESCOPE_EVALUATOR", raising=False)
    assert main(["sweep", str(path), "--vary", VARY, *words]) == exit_codes.FAILED
    assert "A sweep of T5 is measured by your own program. Start with MERGESCOPE_EVALUATOR" in capsys.readouterr().err
    monkeypatch.setenv("MERGESCOPE_EVALUATOR", shlex.join(program.command_words))
    assert main(["sweep", str(path), "--vary", VARY, "--workers", "2", *words]) == exit_codes.FAILED
    assert "Workers compute points of CLIP" in capsys.readouterr().err and not calls(tmp_path)
    assert main(["sweep", str(path), "--json", "--vary", VARY, "--share", "0/2", *words]) == exit_codes.DONE
    capsys.readouterr()
    assert len(calls(tmp_path)) == 2
    assert main(["sweep", str(path), "--json", "--vary", VARY, *words]) == exit_codes.DONE
    plain = json.loads(capsys.readouterr().out)
    assert len(calls(tmp_path)) == 3  # only what was missing
    order = [(row["x"], row["task"]) for row in plain["scores"]]
    assert order == [(x, task) for x in (0.2, 0.4, 0.6) for task in ("b", "news", "a")]
    norms = [row["value"] for row in plain["scores"] if row["metric"] == "perplexity"]
    assert norms == sorted(set(norms))  # each point is a model of its own
    assert {row["mean"] for row in plain["means"]} == {"in domain"} and plain["means"][0]["tasks"] == 2
    left = [*(tmp_path / "store" / "evaluating").iterdir(), *map(Path, calls(tmp_path))]
    assert not [each for each in left if each.exists()]
    assert main(["sweep", str(path), "--vary", VARY, *words]) == exit_codes.DONE
    said = capsys.readouterr().out
    assert "3 points, 3 of them stored" in said and "These scores are from" in said and len(calls(tmp_path)) == 3


def test_another_command_line_gives_other_points(recipe: Recipe, program: Evaluator, tmp_path: Path) -> None:
    sweep, store = sweep_of(recipe, 0.2, 0.4), Store(tmp_path / "store", libraries=())
    run(store, sweep, program)
    other = Evaluator((*program.command_words, "--few"))
    assert not stored(store, sweep, other) and len(stored(store, sweep, program)) == 2
    (tmp_path / "my_eval.py").write_text(CODE.replace("sys.argv[1]", "sys.argv[2]"), "utf-8")
    run(store, sweep, other)
    assert len(calls(tmp_path)) == 4 and len(stored(store, sweep, other)) == len(stored(store, sweep, program)) == 2
    assert not store.list_runs() and not points.read_latest_times(store)  # which say what points on the benchmark take


def test_cancelling_stops_the_program_and_keeps_the_points(recipe: Recipe, program: Evaluator, tmp_path: Path) -> None:
    sweep, store, pid = sweep_of(recipe, 0.2, 0.4), Store(tmp_path / "store", libraries=()), tmp_path / "pid"
    hangs = (
        "import os, pathlib, time\nplace = pathlib.Path(__file__).parent\n"
        "if (place / 'calls.txt').exists():\n    (place / 'pid').write_text(str(os.getpid()))\n    time.sleep(600)\n"
    )
    (tmp_path / "my_eval.py").write_text(hangs + CODE, "utf-8")
    cancel = threading.Event()

    def asked() -> bool:
        if pid.is_file() and pid.read_text():
            cancel.set()
        return cancel.is_set()

    with pytest.raises(Cancelled):
        run(store, sweep, program, cancel=asked)
    assert not psutil.pid_exists(int(pid.read_text()))
    assert len(stored(store, sweep, program)) == 1 and not list((store.root / "evaluating").iterdir())


def test_lines_and_mixed_kinds_are_refused(recipe: Recipe, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="A sweep of T5 can only vary values of the recipe"):
        find_network(Sweep(recipes=(recipe,), axes=(Axis("alpha", (0.0, 1.0)),), kind=LINE))
    other_kinds.write_team(tmp_path / "bert", "BERT", ())
    bert = replace(recipe, pretrained=str(tmp_path / "bert" / "pretrained.safetensors"))
    with pytest.raises(RecipeError, match="the same kind of network; got T5 and BERT"):
        find_network(Sweep(recipes=(recipe, bert), axes=(Axis("task_arithmetic.scaling", (0.2, 0.4)),)))


def test_tasks_without_an_expert_have_one_mean_of_one_proportion(recipe: Recipe) -> None:
    one = NamedPoint(sweep_of(recipe, 0.2, 0.4).points[0], "0" * 12, "1" * 12)
    scores = [("x", "accuracy", 0.2), ("y", "accuracy", 0.6), ("x", "f1", 0.9), ("z", "exact_match", 0.9)]

    def means(count: int) -> list[dict[str, Any]]:
        table = ScoreTable(PROGRAM, "my_eval.py", tuple(Score(*score) for score in scores[:count]))
        return score_means([one], {one.name: Point(one.name, table.columns, "CPU", "", program=table.origin)})

    (mean,) = means(4)
    assert (mean["mean"], mean["metric"], mean["value"], mean["tasks"]) == ("mean", "accuracy", pytest.approx(0.4), 2)
    assert means(1) == []
