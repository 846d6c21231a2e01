"""``merge`` and ``run`` of chains that learn: options, refusals, what is said, pausing and going on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from merging.cli import exit_codes
from merging.cli.main import main
from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.recipe import Recipe
from merging.study.runs.run_store import Store

SURGERY = ["--adapt", "surgery:rank=2,steps=5"]


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_folder: Path) -> Store:
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(tiny_folder))
    monkeypatch.setenv("MERGESCOPE_STORE", str(tmp_path / "store"))
    return Store(tmp_path / "store", libraries=())


@pytest.fixture
def merge(tiny_benchmark: Benchmark) -> Any:
    """Calls ``merge`` on the tiny benchmark's models."""
    experts = [word for name, path in tiny_benchmark.experts.items() for word in ("--expert", f"{name}={path}")]
    return lambda *words: main(["merge", "--pretrained", tiny_benchmark.pretrained, *experts, *words])


@pytest.mark.full
def test_an_adapted_merge_is_exported_and_its_marks_are_said(merge, tmp_path, capsys) -> None:
    assert merge(*SURGERY, "--test-data", "reporting:per_task=3", "--out", str(tmp_path / "out")) == 0
    out, err = capsys.readouterr()
    assert "† Adapted on these images" in out and "Per task in domain" in out
    assert "The merge learns: about" in err
    assert (tmp_path / "out").is_dir()
    assert merge(*SURGERY, "--json", "--out", str(tmp_path / "other")) == 0
    facts = json.loads(capsys.readouterr().out)
    marks = {name: facts[name] for name in ("adapt", "adapted_on", "adapts_on_test", "needs_task")}
    assert marks == {"adapt": "surgery", "adapted_on": "choosing", "adapts_on_test": False, "needs_task": True}


@pytest.mark.parametrize("key", ["wemoe", "twin"])
def test_what_routes_images_is_no_plain_checkpoint(merge, tmp_path, capsys, store, key) -> None:
    assert merge("--adapt", key, "--out", str(tmp_path / "one.safetensors")) == exit_codes.USAGE
    assert "its weights differ from image to image, so a plain checkpoint cannot hold it; name a folder" in (
        capsys.readouterr().err
    )
    assert merge("--adapt", key, "--to", "hf", "--out", str(tmp_path / "folder")) == exit_codes.USAGE
    assert "cannot be written for hf" in capsys.readouterr().err
    assert not store.list_runs() and not (tmp_path / "folder").exists()


def test_problems_are_told_together(merge, tmp_path, capsys) -> None:
    out = ["--out", str(tmp_path / "out")]
    assert merge("--adapt", "surgry", "--test-data", "training", *out) == exit_codes.USAGE
    err = capsys.readouterr().err
    assert "There is no adapt called 'surgry'" in err and "test_data.split must be one of" in err
    assert merge("--adapt", "surgery", "--adapt", "twin", *out) == exit_codes.USAGE
    assert "A recipe has at most one adapt; got surgery and twin." in capsys.readouterr().err
    assert merge("--merge", "emr", "--adapt", "surgery", *out) == exit_codes.FAILED
    assert "so Surgery has nothing to adapt" in capsys.readouterr().err
    assert merge("--adapt", "twin", "--test-data", "reporting", *out) == exit_codes.FAILED
    assert "No step of this chain learns from test data" in capsys.readouterr().err


@pytest.mark.full
def test_a_recipe_pauses_with_75_and_goes_on(tiny_benchmark, tmp_path, capsys, store) -> None:
    recipe = Recipe.build("adamerging", {"steps": 4, "batch": 4}, [], tiny_benchmark.pretrained, tiny_benchmark.experts)
    file, flag = tmp_path / "recipe.yaml", tmp_path / "pause"
    file.write_text(recipe.to_yaml())
    flag.touch()
    assert main(["run", str(file), "--pause-file", str(flag)]) == exit_codes.PAUSED
    assert "what was learned so far is saved" in capsys.readouterr().err
    (kept,) = (store.root / "learning").iterdir()
    assert not store.list_runs()
    assert main(["run", str(file)]) == exit_codes.DONE
    assert "about" in capsys.readouterr().err
    assert not kept.exists() and store.get_run(kept.stem).adapted_on == "choosing"


def test_run_says_which_settings_of_a_recipe_no_step_needs(tiny_benchmark, tmp_path, capsys) -> None:
    recipe = Recipe.build("ties", {}, [], tiny_benchmark.pretrained, tiny_benchmark.experts)
    file = tmp_path / "recipe.yaml"
    file.write_text(recipe.to_yaml() + "test_data: {split: reporting}\n")
    assert main(["run", str(file), "--device", "cpu", "--no-evaluate"]) == 0
    assert "No step of this chain learns from test data, so test_data is not used." in capsys.readouterr().err
