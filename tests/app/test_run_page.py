"""The page of one run: small pictures that lead to their pages, the map of features, and what it offers to measure."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from page_harness import press, runs, words
from streamlit.testing.v1 import AppTest

from app.reading import figures
from merging.images.benchmarks.benchmark import Benchmark
from merging.study import measure
from merging.study.analysis.measurement_subject import FOLDER
from merging.study.runs.run import join_run_ids
from merging.study.runs.run_store import Store
from merging.tasks.context import Context


@pytest.fixture(scope="module")
def mapped(compared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library with everything measured, and a joint map of the pretrained model and TIES."""
    folder = tmp_path_factory.mktemp("mapped") / "library"
    shutil.copytree(compared, folder)
    store = Store(folder / "measuring", libraries=(folder / "runs",), dated=False)
    subject = join_run_ids(sorted(runs(folder)[title].id for title in ("Pretrained", "Ties")))
    measure.measure("joint_tsne", store, Benchmark.load(folder), subject, context=Context(device="cpu"))
    for path in (folder / "measuring" / FOLDER).iterdir():
        if not (folder / FOLDER / path.name).exists():
            path.rename(folder / FOLDER / path.name)
    return folder


def small_pictures(at: AppTest) -> dict[str, Any]:
    """{key of a chart: its figure}."""
    drawn = [(chart.proto.id, chart.proto.spec) for chart in at.get("plotly_chart")]
    return {name.rpartition("small_")[2]: json.loads(spec) for name, spec in drawn if "small_" in name}


def test_four_small_pictures_lead_to_their_pages(look: Any, mapped: Path) -> None:
    ties = runs(mapped)["Ties"].id
    at = look("run", mapped, run=ties)
    assert not at.exception
    assert list(small_pictures(at)) == ["run_plane", "task_accuracy", "drift_depth", "feature_map"]
    links = {link.proto.page: link.proto.query_string for link in at.get("page_link") if "?" in link.proto.label}
    assert set(links) == {"scores", "drift", "features"} and all(f"runs={ties}" in query for query in links.values())
    assert small_pictures(at)["feature_map"]["layout"].get("xaxis2") is None  # the panel of this run alone
    assert "Joint map of features" not in words(at)


def test_a_missing_map_of_features_is_offered_with_the_rest(
    open_app: Any, compared: Path, asked: list[tuple[str, str]]
) -> None:
    known = runs(compared)
    at = open_app("run", compared, run=known["Ties"].id)
    assert "feature_map" not in small_pictures(at) and "“Joint map of features”" in words(at)
    press(at, "Measure all")
    subject = join_run_ids(sorted((known["Ties"].id, known["Pretrained"].id)))
    assert ("joint_tsne", subject) in asked and ("put_back", known["Ties"].id) in asked


def test_a_run_with_one_model_per_task_is_offered_no_map(look: Any, compared: Path) -> None:
    at = look("run", compared, run=next(run.id for run in runs(compared).values() if run.per_task))
    assert not at.exception and "Joint map of features" not in words(at)


def test_how_far_weights_moved_leads_to_the_map_that_shows_it(look: Any, compared: Path) -> None:
    ties = runs(compared)["Ties"].id
    link = f"[Map](run?run={ties}&network_quantity=Distance+from+the+pretrained+weights)"
    assert link in words(look("run", compared, run=ties))
    at = look("run", compared, run=ties, network_quantity="Distance from the pretrained weights")
    assert at.selectbox(key="network_quantity").value == "Distance from the pretrained weights"


@pytest.mark.full
def test_the_map_comes_first_when_the_page_is_presented(open_app: Any, compared: Path) -> None:
    at = open_app("run", compared, run=runs(compared)["Ties"].id)
    at.toggle(key="presentation").set_value(True).run()
    (chart,) = at.get("plotly_chart")
    assert chart.proto.id.endswith("chart_network_map") and not small_pictures(at)


def test_a_narrow_figure_wraps_its_titles_and_shortens_its_ticks() -> None:
    axis = {"title": {"text": "Position in the network; numbers are blocks"}, "ticktext": ("stem", "0", "embedding")}
    narrow = figures.narrow_axis("xaxis", axis)
    assert narrow["title"]["text"] == "Position in the network;<br>numbers are blocks"
    assert narrow["ticktext"] == ["stem", "0", "…"]
    assert figures.narrow_axis("yaxis", {"title": {"text": "Task"}, "ticktext": ("A",)})["title"] == {}
    assert figures.narrow_axis("yaxis2", {"title": {"text": "Drift:<br>1 − cosine"}})["title"]["text"] == "1 − cosine"
