"""Names with spaces and of any alphabet, on the command line and in the app, also where a console knows only ASCII."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from page_harness import press, run_until_idle, words

from app.reading import page_data
from merging.cli.main import main
from merging.recipes.recipe import Recipe
from merging.sharing.catalog.model_set_store import make_model_set, store_model_set
from merging.study.runs.run_store import Store
from merging.study.sweeps import sweep_storage

CHECKOUT = Path(__file__).resolve().parents[2]
ODD = "Bücher & Läufe 日本 🦊"
EXPERTS = ("größe α", "кошки и", "flags")
OPENING = re.compile(r"\bopen\(|(read|write)_text\(")


@pytest.fixture
def odd(tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of an odd name that holds a benchmark, models of odd names and, later, the store."""
    root = tmp_path / ODD
    shutil.copytree(library, root / "das Maß")
    (root / "models 1").mkdir()
    base, tuned = tiny.family(EXPERTS)
    for name, state in {"pretrained": base, **tuned}.items():
        tiny.write(root / "models 1" / f"{name}.safetensors", state, torch.float32)
    monkeypatch.setenv("MERGESCOPE_STORE", str(root / "store é"))
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(root / "das Maß"))
    return root


@pytest.mark.full
def test_the_command_line(odd: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(odd)
    models = [f"--expert={name}=models 1/{name}.safetensors" for name in EXPERTS]
    how = ["--pretrained", "models 1/pretrained.safetensors", *models]
    assert main(["fit", *how]) == 0
    assert main(["merge", *how, "--merge", "ties", "--title", "Größe ≥ 5 日", "--out", "aus gabe/β", "--json"]) == 0
    run = json.loads(capsys.readouterr().out.partition("\n{")[2].join(("{", "")))
    assert run["title"] == "Größe ≥ 5 日" and (odd / "aus gabe" / "β" / "README.md").is_file()
    assert main(["measure", "signs", run["id"]]) == 0
    assert main(["export", run["id"], "--out", "aus gabe/γ.safetensors"]) == 0
    recipe = odd / "rezept ü.yaml"
    recipe.write_text(Store(libraries=()).get_run(run["id"]).recipe_yaml, "utf-8")
    assert main(["sweep", str(recipe), "--vary", "ties.density=0.2,0.4", "--images", "4", "--title", "Κύμα"]) == 0
    assert [sweep.title for sweep in sweep_storage.list_sweeps(Store(libraries=())).values()] == ["Κύμα"]
    assert main(["inspect", f"models 1/{EXPERTS[0]}.safetensors"]) == 0
    assert main(["run", "no such größe.yaml"]) == 1
    assert "größe" in capsys.readouterr().err


@pytest.mark.full
def test_the_app(open_app: Any, odd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = odd / "store é"
    monkeypatch.setenv("MERGESCOPE_STORE", str(store))
    monkeypatch.setenv("MERGESCOPE_MODELS", str(odd / "models 1"))
    experts = {name: f"models:models 1/{name}.safetensors" for name in EXPERTS}
    made = make_model_set("Meine Größe", "models:models 1/pretrained.safetensors", experts)
    store_model_set(store, made)
    at = open_app("merge", odd / "das Maß", models=made.id, chain="task_arithmetic")
    assert not at.exception and not at.error
    at = run_until_idle(press(at, "Run"))
    assert not at.exception and not at.error, words(at)
    (job,) = page_data.job_queue().list_jobs()
    assert job.state == "done", job.error
    assert page_data.store().get_run(job.id).experts == EXPERTS
    for page in ("scores", "masks", "compare", "conflicts"):
        at = open_app(page, odd / "das Maß", run=job.id, runs=job.id)
        assert not at.exception and not at.error


@pytest.mark.full
def test_a_console_that_knows_ascii_only(odd: Path, tiny_family: tiny.Family, tmp_path: Path) -> None:
    """Without Python's UTF-8 mode: files of ours are UTF-8 all the same, and what is printed cannot fail.

    Paths in a recipe are ASCII here: without that mode Python itself opens no others.
    """
    recipe = tmp_path / "recipe.yaml"
    models = dict(zip(EXPERTS, map(str, tiny_family.experts.values()), strict=False))
    plain = Recipe.build("ties", {}, [], str(tiny_family.pretrained), models, "Größe ≥ 5 日")
    recipe.write_text(plain.to_yaml(), "utf-8")
    variables = {**os.environ, "LC_ALL": "C", "LANG": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": ""}
    variables["PYTHONWARNINGS"] = "default"  # others open files without their encoding
    python = [sys.executable, "-X", "utf8=0", "-X", "warn_default_encoding", "-m", "merging", "run"]
    for more in ([], ["--json"]):
        told = subprocess.run([*python, str(recipe), *more], env=variables, capture_output=True, check=False)
        assert told.returncode == 0, told.stderr.decode()
        told.stdout.decode("ascii")
        ours = [line for line in told.stderr.decode("ascii", "replace").splitlines() if f"{CHECKOUT}/merging" in line]
        assert not [line for line in ours if "EncodingWarning" in line], ours
    assert json.loads(told.stdout)["title"] == "Größe ≥ 5 日"
    assert Store(libraries=()).list_runs()[0].title == "Größe ≥ 5 日"


def test_every_text_file_is_opened_with_its_encoding() -> None:
    """An encoding that depends on the machine would make files that another machine cannot read."""
    paths = sorted(
        path for room in ("merging", "viz", "app", "sample_data") for path in (CHECKOUT / room).rglob("*.py")
    )
    texts = {path: text for path in paths if OPENING.search(text := path.read_text("utf-8"))}
    calls = [(path, node) for path, text in texts.items() for node in ast.walk(ast.parse(text))]
    missing = [(path.name, node.lineno) for path, node in calls if isinstance(node, ast.Call) and _guesses(node)]
    assert missing == []


def _guesses(call: ast.Call) -> bool:
    """Whether a call opens a text file, and leaves the encoding to the machine."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if {keyword.arg for keyword in call.keywords} & {"encoding", "force_zip64"}:  # the second: in an archive
        return False
    if name in {"read_text", "write_text"}:
        return len(call.args) <= (name == "write_text")
    texts = [value.value for value in call.args if isinstance(value, ast.Constant) and isinstance(value.value, str)]
    return name == "open" and bool(texts) and set(texts[-1]) <= set("rwax+t")
