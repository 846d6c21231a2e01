"""``merge --mergekit`` and ``export --recipe mergekit``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from merging.cli.main import main
from merging.models.model_references import HUB_PREFIX

CONFIG = """
merge_method: ties
base_model: pretrained
models:
- {model: circles, parameters: {weight: 0.5}}
- {model: digits, parameters: {weight: [0.2, 1.0]}}
parameters: {density: 0.4}
"""


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch, tiny_folder):
    monkeypatch.setenv("MERGESCOPE_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(tiny_folder))


@pytest.fixture
def models(tiny_folder) -> Path:
    return tiny_folder / "models"


@pytest.fixture
def config(tmp_path) -> Path:
    path = tmp_path / "config.yml"
    path.write_text(CONFIG)
    return path


def merge(config: Path, out: Path, *words: str) -> int:
    return main(["merge", "--mergekit", str(config), "--out", str(out), "--no-evaluate", *words])


def test_a_config_merges_and_its_run_is_written_as_a_config(config, models, tmp_path, capsys) -> None:
    named = ["--pretrained", f"{models}/pretrained.safetensors"]
    named += [f"--expert={name}={models}/{name}.safetensors" for name in ("circles", "digits")]
    assert merge(config, tmp_path / "one.safetensors", *named, "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    again = tmp_path / "again.yml"
    assert main(["export", facts["id"], "--recipe", "mergekit", "--out", str(again)]) == 0
    assert f"Written to {again}" in capsys.readouterr().out
    assert merge(again, tmp_path / "two.safetensors", "--json") == 0  # the references are paths now
    assert json.loads(capsys.readouterr().out)["id"] == facts["id"]
    first, second = (load_file(tmp_path / f"{name}.safetensors") for name in ("one", "two"))
    assert all((first[name] == second[name]).all() for name in first)
    assert main(["export", facts["id"], "--recipe", "mergekit"]) == 0
    assert capsys.readouterr().out.strip() == again.read_text("utf-8").strip()
    assert main(["export", facts["id"], "--recipe", "mergekit", "--out", str(again)]) == 2
    assert "exists already" in capsys.readouterr().err


def test_paths_start_at_the_current_folder_or_at_the_config(config, models, tmp_path, monkeypatch, capsys) -> None:
    text = CONFIG.replace("pretrained", "pretrained.safetensors")
    for name in ("circles", "digits"):
        text = text.replace(f"model: {name}", f"model: {name}.safetensors")
    config.write_text(text)
    (models / "config.yml").write_text(text)
    assert merge(models / "config.yml", tmp_path / "a.safetensors") == 0
    monkeypatch.chdir(models)
    assert merge(config, tmp_path / "b.safetensors") == 0
    monkeypatch.chdir(tmp_path)
    assert merge(config, tmp_path / "c.safetensors") != 0
    assert "pretrained.safetensors was not found: it is neither a path nor an expert" in capsys.readouterr().err


def test_a_name_of_an_organization_is_one_on_the_hub(config, monkeypatch) -> None:
    from merging.cli import recipe_argument

    asked: list[str] = []

    def read(reference: str, family: str = "") -> Any:
        asked.append(reference)
        raise RuntimeError

    monkeypatch.setattr("merging.recipes.mergekit.tensors.read_network_tensors", read)
    config.write_text("merge_method: sce\nbase_model: openai/clip@main\nmodels: [{model: org/expert}]")
    with pytest.raises(RuntimeError):
        recipe_argument.read_mergekit_file(config, None, {})
    assert asked == [f"{HUB_PREFIX}openai/clip@main"]


@pytest.mark.parametrize(
    "words,problem",
    [
        (["--merge", "ties", "--edit", "dare"], "leave out --edit and --merge, or --mergekit"),
        (["--test-data", "choosing"], "leave out --test-data"),
    ],
)
def test_a_config_has_all_steps(words: list[str], problem: str, config, models, tmp_path, capsys) -> None:
    assert merge(config, tmp_path / "x.safetensors", "--layout", str(models), *words) != 0
    assert problem in capsys.readouterr().err


def test_wrong_files_are_named(tmp_path, models, capsys) -> None:
    assert merge(tmp_path / "none.yml", tmp_path / "x.safetensors") == 2
    assert "The config of mergekit was not found" in capsys.readouterr().err
    for content, problem in (
        (b"\xff\xfe\x00", "bad.yml cannot be read as a config of mergekit: it is not text"),
        (b"merge_method: passthrough", "bad.yml: The config of mergekit has merge_method 'passthrough'"),
    ):
        (tmp_path / "bad.yml").write_bytes(content)
        assert merge(tmp_path / "bad.yml", tmp_path / "x.safetensors", "--layout", str(models)) != 0
        assert problem in capsys.readouterr().err


def test_without_a_config_the_models_are_required(tmp_path, capsys) -> None:
    assert main(["merge", "--out", str(tmp_path / "x"), "--no-evaluate"]) == 2
    assert "--pretrained" in capsys.readouterr().err
    assert main(["export", "abc"]) == 2 and "--out" in capsys.readouterr().err
