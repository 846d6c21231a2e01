"""The command ``image``: one image through a run, a file of one's own, and images that are found."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from merging.cli.main import main
from merging.recipes.presets import find_preset
from merging.study.runs.execute import execute
from merging.study.runs.run_store import Store


@pytest.fixture(scope="module")
def run(tmp_path_factory, tiny_benchmark):
    store = Store(tmp_path_factory.mktemp("store"), libraries=())
    recipe = find_preset("task_arithmetic").recipe(tiny_benchmark.pretrained, tiny_benchmark.experts)
    return execute(recipe, store, benchmark=tiny_benchmark)


@pytest.fixture(autouse=True)
def places(run, monkeypatch, tiny_folder):
    monkeypatch.setenv("MERGESCOPE_STORE", str(run.path.parent.parent))
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(tiny_folder))


def test_an_image_of_a_data_set(run, capsys):
    assert main(["image", run.id[:7], "letters:reporting:4", "--device", "cpu"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("letters:reporting:4: Task Arithmetic says “letters ") and "pretrained model" in out
    assert "class token" in out and "output" in out


def test_everything_in_json(run, capsys):
    tables = ["lens", "attention", "restore_tokens"]
    assert (
        main(["image", run.id, "digits:choosing:0", "--json", *(word for t in tables for word in ("--table", t))]) == 0
    )
    shown = json.loads(capsys.readouterr().out)
    assert shown["image"] == "digits:choosing:0" and shown["reference"] == "experts/digits"
    assert list(shown["tables"]) == tables and {row["model"] for row in shown["tables"]["lens"]} == {
        run.id,
        "experts/digits",
    }
    assert len(shown["tables"]["restore_tokens"]) == 3 * 5
    assert main(["image", run.id, "digits:choosing:0", "--json", "--against", "pretrained"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["reference"] == "pretrained" and "overlap" in shown["tables"] and "attention" not in shown["tables"]


def test_a_picture_of_one_s_own(run, tmp_path, capsys):
    path = tmp_path / "own.png"
    Image.fromarray(np.full((20, 30, 3), 90, np.uint8)).save(path)
    assert main(["image", run.id, str(path)]) == 1
    assert "--head must name one: circles, digits" in capsys.readouterr().err
    assert main(["image", run.id, str(path), "--head", "flags", "--json", "--table", "lens"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (
        shown["image"].startswith("own:")
        and shown["class"] is None
        and not any(row["right"] for row in shown["tables"]["lens"])
    )
    path.write_bytes(b"<svg/>")
    assert main(["image", run.id, str(path), "--head", "flags"]) == 1
    assert "SVG" in capsys.readouterr().err


def test_images_that_turn(run, capsys):
    assert main(["image", run.id, "--find", "turns", "--depth", "2", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows and {row["value"] for row in rows} == {2.0}
    assert main(["image", run.id, "--find", "drift"]) == 0
    assert "180 images of the reporting half; at most 20 are listed" in capsys.readouterr().out


def test_problems_are_told(run, capsys):
    assert main(["image", run.id, "digits:reporting:0", "--table", "x", "--depth", "y"]) == 2
    problems = capsys.readouterr().err
    assert "--table" in problems and "--depth" in problems
    assert main(["image", run.id]) == 1
    assert "Name one image" in capsys.readouterr().err
    assert main(["image", run.id, "digits:9"]) == 1
    assert "TASK:SPLIT:N" in capsys.readouterr().err
