"""What is damaged, on the pages and on the command line: said in a sentence, and computed again with a click."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tiny_data
from damage import damage_bytes
from page_harness import charts, press, run_until_idle, words

from app.reading import page_data
from merging.base.files.plain_yaml import write_yaml
from merging.cli.main import main
from merging.images.benchmarks import benchmark_folders
from merging.images.benchmarks.benchmark import Benchmark
from merging.images.benchmarks.build.benchmark_description import Description
from merging.images.benchmarks.build.benchmark_folder import write_benchmark
from merging.study.analysis import measurement_store as stored_measurements
from merging.study.runs.run import Run
from merging.study.runs.run_store import Store
from merging.study.sweeps import points, sweep_storage

SHELF = "storage and machine"
COUNTED = "1 damaged result counts as absent"
FILES = ("run.json", "manifest.json", "scores.csv", "tables/saliency.csv", "recipe.yaml")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2])


@pytest.mark.full
@pytest.mark.parametrize(("page", "name"), [*zip(("home", "masks", "scores", "compare", "models"), FILES, strict=True)])
def test_a_damaged_run_breaks_no_page(open_app: Any, library: Path, filled: Run, page: str, name: str) -> None:
    path = filled.path / name
    faults = list(damage_bytes(path.read_bytes()))
    path.write_bytes(faults[7 if page in {"home", "models"} else 12][1])
    query = (
        {"runs": filled.id}
        if page == "scores"
        else {"models_view": "runs", "selected_runs": filled.id}
        if page == "models"
        else {"run": filled.id}
    )
    at = open_app(page, library, **query).run()
    assert not at.exception
    if page_data.store().damaged.list_damage():  # else the page has no need of that file
        assert COUNTED in words(at.run())
        assert not page_data.store().has_run(filled.id)


@pytest.mark.full
def test_the_list_of_damages(open_app: Any, library: Path, filled: Run) -> None:
    (sweep,) = (filled.path.parents[1] / sweep_storage.FOLDER).iterdir()
    store, benchmark = Store(filled.path.parents[1], libraries=()), Benchmark.load(library)
    measured = stored_measurements.find_measurement_result("signs", store, benchmark, filled.id)
    point = min(path for path in points.points_folder(store).iterdir())
    assert measured is not None
    for path in (measured.path / "tables" / "votes.csv", point / "scores.csv", sweep):
        cut(path)
    assert stored_measurements.find_measurement_result("signs", store, benchmark, filled.id) is None
    assert points.find_point(store, point.name) is None and not sweep_storage.list_sweeps(store)
    cut(filled.path / "scores.csv")
    assert not store.has_run(filled.id)
    at = open_app("models", library, models_view=SHELF)
    assert not at.exception and not at.error
    said = words(at).replace("\\", "")
    for what in (f"Run {filled.id}", f"Measurement {measured.path.name}", f"Point {point.name}", f"Sweep {sweep.stem}"):
        assert f"{what} is damaged" in said
    assert "scores.csv" in said and "votes.csv" in said and "4 damaged results count as absent" in said
    assert [button.label for button in at.button].count("Compute it again") == 2
    assert "Describe it again on Sweeps" in said and "when it is resumed" in said


@pytest.mark.full
def test_a_damaged_run_is_computed_again_with_a_click(open_app: Any, library: Path, filled: Run) -> None:
    weights = filled.file("model.safetensors").read_bytes()
    cut(filled.path / "scores.csv")
    at = open_app("models", library, models_view=SHELF)
    press(at, "Compute it again")
    at = run_until_idle(at)
    assert not at.exception and not at.error
    assert "It was computed again" in words(at) and COUNTED not in words(at)
    assert page_data.store().get_run(filled.id).file("model.safetensors").read_bytes() == weights
    press(at, "Delete its remaining files")
    assert not at.exception and not page_data.store().damaged.list_damage()


@pytest.mark.full
def test_a_damaged_measurement_is_offered_again(open_app: Any, library: Path, filled: Run) -> None:
    store = Store(filled.path.parents[1], libraries=())
    found = stored_measurements.find_measurement_result("drift", store, Benchmark.load(library), filled.id)
    assert found is not None
    cut(found.path / "measured.json")
    at = open_app("drift", library, runs=filled.id)
    assert not at.exception and not at.error
    assert "Measure" in [button.label for button in at.button]
    assert COUNTED in words(at)


@pytest.mark.full
def test_a_damaged_point_is_computed_when_its_sweep_is_resumed(open_app: Any, library: Path, filled: Run) -> None:
    store = Store(filled.path.parents[1], libraries=())
    cut(min(points.points_folder(store).iterdir()) / "point.json")
    at = open_app("sweeps", library)
    assert not at.exception and charts(at)
    assert "1 of 2 points" in "".join(str(bar.proto) for bar in at.get("progress"))
    assert "Resume" in [button.label for button in at.button]


@pytest.mark.full
def test_a_damaged_benchmark_is_made_again_with_a_click(open_app: Any, library: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    tiny_data.open_clip_folder(tmp_path / "clip")
    tiny_data.folder(tmp_path / "folder", {"train": tiny_data.rows(2), "test": tiny_data.rows(2, 100)})
    plain = {"pretrained": str(tmp_path / "clip"), "images": 2, "exemplars": 2,
             "tasks": {"flags": {"images": str(tmp_path / "folder")}}}  # fmt: skip
    out = benchmark_folders.own_folder("mine", store)
    write_benchmark(Description.from_plain(plain, tmp_path), out)
    digest = Benchmark.load(out).digest
    out.with_name("mine.yaml").write_text(write_yaml(plain), "utf-8")
    cut(out / "data" / "flags.npz")
    for page in ("merge", "drift"):
        assert not open_app(page, library, benchmark="own:mine").exception
    at = open_app("models", library, models_view="data", benchmark="own:mine")
    assert "flags.npz does not have" in words(at).replace("\\", "")
    press(at, "Move it out and make it again")
    assert not at.exception
    at = run_until_idle(at)
    assert not at.error and Benchmark.load(out).digest == digest
    assert [damage.kind for damage in page_data.store().damaged.list_damage()] == ["benchmark"]


def test_the_command_line(
    filled: Run, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MERGESCOPE_STORE", str(filled.path.parents[1]))
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(library))
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(filled.recipe_yaml, "utf-8")
    weights = filled.path / "model.safetensors"
    good = weights.read_bytes()
    weights.write_bytes(good[:3000] + bytes([good[3000] ^ 4]) + good[3001:])
    assert main(["export", filled.id, "--out", str(tmp_path / "out")]) == 1
    assert "model.safetensors does not have the sha-256" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert main(["run", str(recipe), "--need-model"]) == 0
    assert weights.read_bytes() == good
    assert main(["export", filled.id, "--out", str(tmp_path / "out")]) == 0


@pytest.mark.full
def test_a_command_says_what_it_has_set_aside(filled: Run, library: Path) -> None:
    store = filled.path.parents[1]
    for path in (store / "measured").glob("*/tables/votes.csv"):
        cut(path)
    told = subprocess.run(
        [sys.executable, "-m", "merging", "measure", "signs", filled.id, "--store", str(store), "--json"],
        env={**os.environ, "MERGESCOPE_BENCHMARK": str(library)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "is damaged" in told.stderr and "votes.csv" in told.stderr and "set aside" in told.stderr
    assert json.loads(told.stdout)["provenance"] == "this machine"
