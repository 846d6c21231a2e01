"""Spectra on the Conflicts page: asked for, drawn for a layer and by depth, and beside the accuracy kept."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import tiny_library
import torch
from page_harness import chart_keys, chart_specs, press, runs, words

from app.views.conflicts import linear_layers
from merging.images.benchmarks.benchmark import Benchmark
from merging.study import measure
from merging.study.analysis import measurement_subject
from merging.study.runs.run_store import Store
from merging.tasks.context import Context

VIEW = "spectra"


@pytest.fixture(scope="module")
def decomposed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with spectra of all merges into one model."""
    folder = tiny_library.write(tmp_path_factory.mktemp("decomposed"), ("ties", "emr"))
    store = Store(folder / "measuring", libraries=(folder / "runs",), dated=False)
    for run in store.list_runs():
        if run.kind == "merge" and not run.per_task:
            measure.measure("spectra", store, Benchmark.load(folder), run.id, context=Context(device="cpu"))
    (folder / "measuring" / measurement_subject.FOLDER).rename(folder / measurement_subject.FOLDER)
    return folder


def test_the_page_asks_before_it_measures(open_app: Any, library: Path, asked: list[tuple[str, str]]) -> None:
    at = open_app("conflicts", library, conflicts_view=VIEW)
    assert (
        not at.exception and chart_keys(at) == ["layer_spectrum"] and "Spectra have not been measured for" in words(at)
    )
    press(at, "Measure")
    assert [key for key, _ in asked] == ["spectra"]


def test_spectra_are_drawn_by_layer_depth_and_task(open_app: Any, decomposed: Path) -> None:
    run = runs(decomposed)["Ties"]
    at = open_app("conflicts", decomposed, conflicts_view=VIEW, run=run.id)
    assert not at.exception
    assert chart_keys(at) == ["layer_spectrum", "rank_depth", "alignment_depth", "alignment_accuracy"]
    said = words(at)
    assert "entropy of σ²" in said and "leave out at most 5% of its norm" in said and "Runs: this one" in said
    assert "over the tasks of one run (mean of 2)" in said and "least squares" in chart_specs(at)[3]
    at.selectbox(key="rank_metric").set_value("stable rank").run()
    assert not at.exception and "stable\\u003cbr\\u003erank" in chart_specs(at)[1]


def test_a_layer_is_decomposed_once(open_app: Any, decomposed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, layer, read = runs(decomposed)["Ties"], "visual.transformer.resblocks.0.mlp.c_proj.weight", list[str]()
    read_matrices = linear_layers.read_task_matrices

    def count(run_id: str, name: str) -> torch.Tensor:
        read.append(name)
        return read_matrices(run_id, name)

    monkeypatch.setattr(linear_layers, "read_task_matrices", count)
    at = open_app("conflicts", decomposed, conflicts_view=VIEW, run=run.id, tensor=layer)
    at.selectbox(key="rank_metric").set_value("stable rank").run()
    assert not at.exception and chart_keys(at)[0] == "layer_spectrum" and read == [layer]


def test_one_run_has_no_line(open_app: Any, decomposed: Path, tmp_path: Path) -> None:
    run, folder = runs(decomposed)["Ties"], shutil.copytree(decomposed, tmp_path / "one")
    for facts in (folder / measurement_subject.FOLDER).glob("*/measured.json"):
        if json.loads(facts.read_bytes())["run"] != run.id:
            shutil.rmtree(facts.parent)
    at = open_app("conflicts", folder, conflicts_view=VIEW, run=run.id)
    assert not at.exception and "least squares" not in chart_specs(at)[3]
    assert "over the tasks of one run (mean of 1)" in words(at) and "over all points" not in words(at)


def test_one_model_per_task_has_none(open_app: Any, decomposed: Path) -> None:
    run = runs(decomposed)["EMR-Merging"]
    at = open_app("conflicts", decomposed, conflicts_view=VIEW, run=run.id)
    assert not at.exception and not chart_keys(at) and "one model per task" in words(at)
