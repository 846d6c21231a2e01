"""The command ``preview``: files and stored runs, against the pretrained model, a run or a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from merging.cli.main import main
from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.recipe import Recipe
from merging.study.runs.execute import execute
from merging.study.runs.run_store import Store
from merging.tasks.context import Context


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_folder: Path) -> None:
    monkeypatch.setenv("MERGESCOPE_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(tiny_folder))


@pytest.fixture
def recipe(tmp_path: Path, tiny_benchmark: Benchmark) -> Path:
    one = Recipe.build("ties", {}, [], tiny_benchmark.pretrained, tiny_benchmark.experts, "Ties <b>\u202e")
    path = tmp_path / "ties.yaml"
    path.write_text(one.to_yaml(), "utf-8")
    return path


def test_a_file_against_the_pretrained_model(recipe, capsys):
    assert main(["preview", str(recipe), "--per-task", "4", "--seed", "2"]) == 0
    out = capsys.readouterr().out
    assert (
        "n = 24, seed 2" in out and "against Pretrained" in out and "choosing half" in out and "It is not a run" in out
    )
    assert "\u202e" not in out and out.count("[") == 3 + 6 + 1


def test_a_run_against_itself_in_json(recipe, tiny_benchmark, tmp_path, capsys):
    run = execute(Recipe.load(recipe), Store(tmp_path / "store"), benchmark=tiny_benchmark, context=Context("cpu"))
    assert main(["preview", run.id, "--against", run.id, "--json", "--device", "cpu"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["preview"] is True and shown["half"] == "choosing" and shown["n"] == 120 and "id" not in shown
    assert {row["difference"] for row in shown["changes"]} == {0.0}
    assert len(Store(tmp_path / "store", libraries=()).list_runs()) == 1  # nothing was stored


def test_problems_are_told_together(recipe, capsys):
    assert main(["preview", str(recipe), "--per-task", "x", "--seed", "y"]) == 2
    problems = capsys.readouterr().err
    assert "--per-task" in problems and "--seed" in problems
    assert main(["preview", str(recipe), "--per-task", "0"]) == 1
    assert "at least 1" in capsys.readouterr().err
    assert main(["preview", str(recipe), "--against", "nothing"]) == 1
    assert "nothing" in capsys.readouterr().err
