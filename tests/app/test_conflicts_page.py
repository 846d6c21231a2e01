"""The Conflicts page and its sign agreement: with and without measurements, clicks, links, what asks for a job."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import tiny_library
from page_harness import chart_keys, charts, click, labels, picker, press, runs, words

from app.views.conflicts import linear_layers, sign_agreement
from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.recipe import Recipe
from merging.study import measure
from merging.study.analysis import drm_joint_space, measurement_subject
from merging.study.measurements.signs import DENSITIES, RANK_TOL
from merging.study.runs.execute import execute
from merging.study.runs.run_store import Store
from merging.tasks.context import Context

LAYER = "visual.transformer.resblocks.1.mlp.c_fc.weight"
OTHER = "visual.transformer.resblocks.0.attn.out_proj.weight"


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library whose experts' signs are counted."""
    folder = tiny_library.write(tmp_path_factory.mktemp("counted"), ("weight_averaging", "ties"))
    store = Store(folder / "measuring", libraries=(folder / "runs",), dated=False)
    first = next(run for run in store.list_runs() if run.recipe is not None)
    found = measure.measure("signs", store, Benchmark.load(folder), first.id, context=Context(device="cpu"))
    shutil.copytree(found.path, folder / measurement_subject.FOLDER / found.path.name)
    return folder


def test_what_the_slider_offers_is_what_is_measured() -> None:
    assert (sign_agreement.DENSITIES, sign_agreement.DEFAULT_RANK_CUT) == (DENSITIES, RANK_TOL)


def test_all_layers_where_signs_are_counted(look: Any, counted: Path) -> None:
    at = look("conflicts", counted)
    assert not at.exception
    assert not at.error
    assert chart_keys(at) == ["sign_layers", "sign_histogram", "election_layers"]
    assert "4 experts: **Circles**, **Digits**, **Flags** and **Leaves**" in words(at)
    assert "Precomputed on CPU" in words(at)
    assert "Measure" not in labels(at, "button")
    assert "Rank cut of this layer" not in labels(at, "slider")
    assert len(at.dataframe[0].value) == 4


@pytest.mark.parametrize("title", ["Weight Averaging", "Ties"])
def test_every_run_on_the_same_experts_shows_them(look: Any, counted: Path, title: str) -> None:
    at = look("conflicts", counted, run=runs(counted)[title].id)
    assert not at.exception
    assert "sign_layers" in chart_keys(at)


@pytest.mark.full
def test_a_click_on_a_cell_chooses_the_layer(open_app: Any, counted: Path) -> None:
    at = open_app("conflicts", counted)
    assert picker(click(at, "sign_layers", "joint_h", LAYER), "tensor").value == LAYER
    assert not at.exception
    assert "directions at rank cut 0.01" in words(at)
    at.slider(key="rank_cut").set_value(0.1).run()
    assert "directions at rank cut 0.1" in words(at)
    click(at, "election_layers", OTHER, "flags")
    assert picker(at, "tensor").value == OTHER
    click(at, "sign_layers")  # the empty selection that follows every redraw
    assert picker(at, "tensor").value == OTHER


def test_another_density_or_cut_needs_no_other_decomposition(
    open_app: Any, counted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = open_app("conflicts", counted, tensor=LAYER)
    assert "directions at rank cut 0.01" in words(at)

    def again(*_: Any) -> None:
        raise AssertionError("decomposed again")

    monkeypatch.setattr(drm_joint_space, "left_factors", again)
    at.select_slider(key="density").set_value(0.5).run()
    at.slider(key="rank_cut").set_value(0.05).run()
    at.segmented_control(key="conflicts_view").set_value("joint space of DRM").run()
    assert not at.exception
    assert "directions" in words(at) and chart_keys(at)[0] == "joint_spectrum"


def test_a_link_restores_the_view(open_app: Any, counted: Path) -> None:
    at = open_app(
        "conflicts",
        counted,
        tensor=LAYER,
        density="0.5",
        rank_cut="0.05",
        sign_metric="density",
        election_metric="share of what survives",
    )
    assert not at.exception
    assert (picker(at, "tensor").value, at.slider(key="rank_cut").value) == (LAYER, 0.05)
    assert at.select_slider(key="density").value == 0.5
    assert at.selectbox(key="sign_metric").value == "density"
    assert at.selectbox(key="election_metric").value == "share of what survives"


@pytest.mark.parametrize(
    "query",
    [{"tensor": "no such layer"}, {"density": "7", "rank_cut": "x"}, {"conflicts_view": "EVIL", "sign_metric": "?"}],
)
def test_a_bad_link_falls_back(look: Any, counted: Path, query: dict[str, str]) -> None:
    at = look("conflicts", counted, **query)
    assert not at.exception
    assert charts(at) == 3


def test_a_run_that_is_not_here(look: Any, counted: Path) -> None:
    at = look("conflicts", counted, run="000000000000")
    assert not at.exception
    assert "does not have" in words(at)


@pytest.mark.full
def test_without_a_measurement_one_layer_is_there_and_the_rest_is_offered(
    open_app: Any, library: Path, asked: list[tuple[str, str]]
) -> None:
    at = open_app("conflicts", library)
    assert not at.exception
    assert chart_keys(at) == ["sign_histogram"]
    first = picker(at, "tensor").value
    assert first.startswith("visual.transformer.resblocks.1.")
    assert "has not been counted" in words(at)
    picker(at, "tensor").set_value("visual.proj").run()
    assert "directions at rank cut" in words(at)
    press(at, "Measure")
    assert asked == [("signs", at.selectbox(key="picker").value)]


def test_home_leads_here_where_there_is_no_lesson(
    open_app: Any, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.reading.offered_lessons.lessons", dict)
    at = open_app("home", library)
    assert not at.exception
    assert [link for link in at.get("page_link") if link.proto.label == "Open Conflicts"]


def test_no_runs_lead_to_merge(look: Any, tiny_folder: Path) -> None:
    at = look("conflicts", tiny_folder)
    assert not at.exception
    assert "Merge some experts" in words(at)


def merge_of(folder: Path, count: int) -> Path:
    """A copy of the benchmark's folder with one run, of its first experts."""
    made = shutil.copytree(folder, folder.parent / f"of_{count}")
    benchmark, store = Benchmark.load(made), Store(made / "making", libraries=())
    experts = dict(list(benchmark.experts.items())[:count])
    recipe = Recipe.build("weight_averaging", {}, [], benchmark.pretrained, experts)
    execute(recipe, store, benchmark=benchmark, evaluate=False, keep_model=False)
    (store.root / "runs").rename(made / "runs")
    return made


def test_one_expert_has_nobody_to_disagree_with(open_app: Any, tiny_folder: Path) -> None:
    at = open_app("conflicts", merge_of(tiny_folder, 1))
    assert not at.exception
    assert "only one" in words(at)
    assert charts(at) == 0


def test_a_changed_checkpoint_is_explained(open_app: Any, tiny_folder: Path) -> None:
    folder = merge_of(tiny_folder, 2)
    shutil.copy(folder / "models" / "flags.safetensors", folder / "models" / "digits.safetensors")
    at = open_app("conflicts", folder)
    assert not at.exception
    assert "not the ones that this run merged: digits" in at.error[0].value.replace("\\", "")
    assert picker(at, "tensor")  # what else is there still is


def test_layers_are_the_linear_ones_in_forward_order(open_app: Any, library: Path) -> None:
    open_app("conflicts", library)
    run = next(run for run in runs(library).values() if run.recipe is not None)
    rows = linear_layers.list_linear_layers(run)
    assert set(rows["role"]) == {"linear", "projection"}
    assert rows["tensor"].iloc[-1] == "visual.proj"
    shape = tuple(linear_layers.read_task_matrices(run.id, "visual.proj").shape)
    assert shape[0] == len(run.experts) and shape[1] < shape[2]  # as a linear weight: outputs by inputs
