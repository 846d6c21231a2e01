"""The Drift page: its five views with and without measurements, clicks, links, and what asks for a measurement."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import tiny
import tiny_library
from page_harness import charts, click, labels, picker, press, runs, words

from merging.images.benchmarks.benchmark import Benchmark
from merging.study import measure
from merging.study.analysis import measurement_subject
from merging.study.runs.run_store import Store
from merging.study.trials import exemplar_sensitivity
from merging.tasks.context import Context

DEPTH, LAYERS, CASES, EXEMPLARS, CAT = (
    "by depth",
    "layer by layer",
    "two extreme cases",
    "exemplars",
    "what CAT removes",
)
TENSOR = "visual.transformer.resblocks.1.mlp.c_fc.weight"


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with LOT and CAT, and with everything measured that the page can show."""
    folder = tiny_library.write(tmp_path_factory.mktemp("measured"), ("ties", "lot", "cat"))
    tiny_library.measure(folder, "LOT Merging")
    store = Store(folder / "more", libraries=(folder / "runs",), dated=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exemplar_sensitivity, "COUNTS", (1, 4))
        patch.setattr(exemplar_sensitivity, "SEEDS", (0,))
        patch.setattr(exemplar_sensitivity, "CANDIDATES", exemplar_sensitivity.CANDIDATES[:2])
        found = measure.measure("exemplars", store, Benchmark.load(folder), context=Context(device="cpu"))
    shutil.copytree(found.path, folder / measurement_subject.FOLDER / found.path.name)
    return folder


# The views


WITH = [
    (DEPTH, 2, 2, f"n = {tiny.CHOOSING} images per task of the choosing half"),
    (LAYERS, 2, 1, f"n = {tiny.EXEMPLARS} exemplars per task (training images), seed 0, those that the merge"),
    (CASES, 2, 0, "from synthetic numbers, seed 0"),
    (EXEMPLARS, 2, 1, f"n = {4 * tiny.REPORTING} images over 4 tasks"),
    (CAT, 1, 0, "exemplars per task (training images), seed 0. Recorded while the run was merged"),
]


@pytest.mark.full
@pytest.mark.parametrize(("view", "drawn", "tables", "says"), WITH)
def test_view_with_measurements(look: Any, measured: Path, view: str, drawn: int, tables: int, says: str) -> None:
    at = look("drift", measured, drift_view=view, run=runs(measured)["LOT Merging"].id if view == LAYERS else "")
    assert not at.exception
    assert not at.error
    assert at.title[0].value == "Drift"
    assert (charts(at), len(at.dataframe)) == (drawn, tables)
    assert "Measure" not in labels(at, "button")
    assert "has not been measured" not in words(at)
    assert says in words(at)
    assert view != LAYERS or "In the 10 weight matrices of this run LOT solved on" in words(at)
    assert view != EXEMPLARS or len(at.latex) == 2


@pytest.mark.parametrize("view", [DEPTH, LAYERS, EXEMPLARS])
def test_view_without_measurements(open_app: Any, library: Path, view: str, asked: list[tuple[str, str]]) -> None:
    at = open_app("drift", library, drift_view=view)
    assert not at.exception
    assert charts(at) == 0
    assert "measured" in words(at)
    press(at, "Measure")
    assert not at.exception
    if view == EXEMPLARS:
        assert asked == [("exemplars", "")]
    else:
        assert sorted(asked) == sorted(("drift", run_id) for run_id in at.multiselect(key="drifting").value)
        assert len(asked) > 1


def test_the_illustration_needs_nothing(open_app: Any, tiny_folder: Path) -> None:
    at = open_app("drift", tiny_folder, drift_view=CASES)
    assert charts(at) == 2
    assert "LOT combines both cases" in words(at) and "are in different order" in words(at)
    at.slider(key="shared_directions").set_value(0).run()
    assert "orthogonal: LOT drifts from neither expert, and neither does the sum" in words(at)
    assert "sum of both 0%" in at.get("plotly_chart")[1].proto.spec + str(at.get("plotly_chart")[1].proto)
    assert not at.exception
    at = open_app("drift", tiny_folder, drift_view=CASES, shared_directions="0", trained_vectors="false")
    assert not at.toggle(key="trained_vectors").value
    assert "The sum does: each vector acts on the other's inputs" in words(at)
    assert "sum of both 100%" in at.get("plotly_chart")[1].proto.spec + str(at.get("plotly_chart")[1].proto)


def test_without_a_cat_run_the_way_to_one_is_shown(look: Any, library: Path) -> None:
    at = look("drift", library, drift_view=CAT)
    assert charts(at) == 0
    links = [link.proto for link in at.get("page_link") if link.proto.label == "Merge with CAT"]
    assert [link.query_string for link in links] == ["chain=cat%3Btask_arithmetic"]


@pytest.mark.parametrize("view", [DEPTH, CAT])
def test_view_without_runs(look: Any, tiny_folder: Path, view: str) -> None:
    at = look("drift", tiny_folder, drift_view=view)
    assert not at.exception
    assert charts(at) == 0
    assert "There is no run yet" in words(at)


def test_what_is_measured_is_drawn_beside_the_offer_to_measure_the_rest(
    open_app: Any, library: Path, tmp_path: Path
) -> None:
    """One of two runs is measured in the user's own store."""
    known = runs(library)
    run = known["Weight Averaging"].id
    store = Store(tmp_path / "store", libraries=(library / "runs",))
    measure.measure("drift", store, Benchmark.load(library), run, context=Context(device="cpu"))
    at = open_app("drift", library, runs=f"{run},{known['Ties'].id}")
    assert charts(at) == 2
    assert "Feature drift has not been measured for **TIES (sum, λ 0.3)" in words(at).replace("\\", "")
    assert "The measurement “Feature drift” took" in words(at)
    assert "Measured on this machine" in words(at)


# Clicks and links


def test_a_click_on_a_cell_puts_it_in_focus(open_app: Any, measured: Path) -> None:
    at = open_app("drift", measured, drift_view=LAYERS)
    assert picker(at, "tensor").value is None
    at = click(at, "drift_layers", "flags", TENSOR)
    assert not at.exception
    assert (picker(at, "tensor").value, picker(at, "expert").value) == (TENSOR, "flags")
    assert charts(at) == 3  # the tensor has a chart of its own
    assert f"Every run uses the exemplars of its own recipe: n = 2 to {tiny.EXEMPLARS} per task." in words(at)
    at = click(at, "drift_layers")  # the empty selection that follows every redraw
    assert picker(at, "tensor").value == TENSOR
    picker(at, "tensor").select_index(0).run()
    assert charts(at) == 2


def test_a_link_restores_one_layer(open_app: Any, measured: Path) -> None:
    known = runs(measured)
    chosen = {"runs": f"{known['LOT Merging'].id},{known['Ties'].id}", "run": known["LOT Merging"].id}
    focus = {"tensor": TENSOR, "expert": "leaves", "tensor_kind": "weight matrices", "drift_metric": "mean square"}
    at = open_app("drift", measured, drift_view=LAYERS, **chosen, **focus)
    assert not at.exception
    assert at.multiselect(key="drifting").value == chosen["runs"].split(",")
    assert at.selectbox(key="one").value == chosen["run"]
    assert {key: at.selectbox(key=key).value for key in ("tensor_kind", "drift_metric")} == {
        k: focus[k] for k in ("tensor_kind", "drift_metric")
    }
    assert (picker(at, "tensor").value, picker(at, "expert").value) == (TENSOR, "leaves")
    assert charts(at) == 3
    assert "exemplars of its own recipe" not in words(at)  # both on as many


def test_a_link_restores_the_pictures_by_depth(open_app: Any, measured: Path) -> None:
    known = runs(measured)
    chosen = f"{known['Ties'].id},{known['LOT Merging'].id}"
    features = {"token": "mean of all tokens", "distance": "mean |difference|"}
    at = open_app("drift", measured, runs=chosen, run=known["Ties"].id, **features)
    assert not at.exception
    assert {key: at.selectbox(key=key).value for key in features} == features
    assert at.selectbox(key="one").value == known["Ties"].id
    at.multiselect(key="drifting").set_value([known["LOT Merging"].id]).run()
    assert at.query_params["runs"] == known["LOT Merging"].id
    assert at.selectbox(key="one").value == known["LOT Merging"].id  # the band moves to a run that is there
    assert at.query_params["run"] == known["Ties"].id  # which stays chosen for other pages


BAD_LINKS = [
    ({"drift_view": "nowhere", "token": "x", "distance": "7"}, 2),
    (
        {
            "drift_view": LAYERS,
            "tensor": "none",
            "expert": "nobody",
            "tensor_kind": "x",
            "drift_metric": "x",
            "run": "000000000000",
        },
        2,
    ),
    ({"drift_view": CASES, "shared_directions": "99", "energy_ratio": "none", "cosine": "2"}, 2),
    ({"drift_view": CAT, "conflict_metric": "x"}, 1),
    ({"runs": "000000000000,../../etc/passwd"}, 0),
]


@pytest.mark.parametrize(("query", "drawn"), BAD_LINKS)
def test_bad_links_show_something_sensible(look: Any, measured: Path, query: dict[str, str], drawn: int) -> None:
    at = look("drift", measured, **query)
    assert not at.exception
    assert charts(at) == drawn
    assert drawn or "does not have" in words(at)
