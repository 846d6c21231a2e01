"""Recipes that list several checkpoints of one expert, on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from merging.base.files.plain_yaml import read_plain_yaml
from merging.cli.main import main
from merging.recipes.recipe import Recipe
from merging.study.runs.run_store import Store

TEXT = """
version: 1
title: Two runs of circles
pretrained: {models}/pretrained.safetensors
experts:
  circles: [{models}/circles.safetensors, {models}/leaves.safetensors]
  digits: {models}/digits.safetensors
merge: {merge}
"""


@pytest.fixture
def write(tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """A function that writes such a recipe with a merge; returns its path."""
    monkeypatch.setenv("MERGESCOPE_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(tiny_folder))
    path = tmp_path / "recipe.yaml"

    def written(merge: str) -> str:
        path.write_text(TEXT.replace("{models}", str(tiny_folder / "models")).replace("{merge}", merge), "utf-8")
        return str(path)

    return written


def test_a_run_is_stored_exported_and_found_again(write: Any, tmp_path: Path, capsys: Any) -> None:
    path, out = write("{model_stock: {across: mean_of_tasks}}"), tmp_path / "out"
    assert main(["run", path, "--device", "cpu", "--out", str(out)]) == 0
    (run,) = Store(tmp_path / "store", libraries=()).list_runs()
    assert run.experts == ("circles", "circles#2", "digits") and run.has_scores and not run.cautions
    assert set(run.inputs) == {"pretrained", "experts/circles", "experts/circles#2", "experts/digits"}
    assert set(run.table("coefficients")["task"]) == {"circles", "digits"}
    assert "circles" in (told := capsys.readouterr().out) and "circles#2" not in told  # one data set, one row
    assert run.recipe is not None and len(run.recipe.to_plain()["experts"]["circles"]) == 2
    exported = read_plain_yaml((out / "recipe.yaml").read_text("utf-8"))
    assert exported["experts"] == {"circles": ["circles.safetensors", "leaves.safetensors"],
                                   "digits": "digits.safetensors"}  # fmt: skip
    assert Recipe.from_plain(exported).experts[1] == ("circles#2", "leaves.safetensors")
    assert "Merged from 2 experts (3 checkpoints)" in (out / "README.md").read_text("utf-8")
    assert main(["run", path, "--device", "cpu"]) == 0
    assert [found.id for found in Store(tmp_path / "store", libraries=()).list_runs()] == [run.id]


def test_a_preview_and_a_sweep_take_it(write: Any, capsys: Any) -> None:
    path = write("{model_stock: {across: sum_of_tasks}}")
    assert main(["preview", path, "--per-task", "4", "--device", "cpu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["preview"] is True
    assert main(["sweep", path, "--vary", "scaling=0,1", "--images", "6", "--device", "cpu", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["points"]) == 2
    assert main(["sweep", path, "--subsets", "--images", "6", "--device", "cpu"]) == 1
    assert "experts with one checkpoint each" in capsys.readouterr().err


def test_another_merge_is_refused_in_a_sentence(write: Any, capsys: Any) -> None:
    assert main(["run", write("ties"), "--device", "cpu"]) == 1
    error = capsys.readouterr().err
    assert "ties takes one checkpoint of each expert, but circles has 2" in error and len(error.splitlines()) == 1
