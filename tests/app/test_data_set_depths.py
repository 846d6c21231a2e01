"""Answers by depth over whole data sets on the page Image: charts, pickers, clicks, and what is not measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny
import tiny_library
from page_harness import SLOW, charts, click, runs, words

from app.reading import measurements
from app.views.image import data_set_tables
from merging.images.benchmarks.benchmark import Benchmark
from merging.study import measure
from merging.study.analysis import measurement_subject
from merging.study.runs.run_store import Store
from merging.tasks.context import Context

TIES, LWPTV = "Ties", "Task Arithmetic w/ LwPTV"
PAGE = """
from app.reading import page_data
from app.session import selection, view_state
from app.views.image.data_set_view import draw_view

view_state.enter_page("image")
selection.follow_link()
draw_view([run for run in page_data.list_merges(page_data.stored_runs()) if run.title in {titles!r}])
"""
MAIN = """
import streamlit as st

st.navigation([st.Page("screens/image.py", url_path="image")]).run()
"""


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with answers by depth of two of its runs."""
    folder = tiny_library.write(tmp_path_factory.mktemp("measured"))
    store = Store(folder / "measuring", libraries=(folder / "runs",), dated=False)
    for title in (TIES, LWPTV):
        measure.measure("depths", store, Benchmark.load(folder), runs(folder)[title].id, context=Context(device="cpu"))
    (folder / "measuring" / measurement_subject.FOLDER).rename(folder / measurement_subject.FOLDER)
    return folder


@pytest.fixture
def open_view(open_app: Any, tmp_path: Path) -> Any:
    """A function that draws the view alone, on a page of its own."""

    def opened(folder: Path, *titles: str, **query: str) -> Any:
        open_app("methods", folder)  # the benchmark and an empty store
        from streamlit.testing.v1 import AppTest

        (tmp_path / "screens").mkdir(exist_ok=True)
        (tmp_path / "screens" / "image.py").write_text(PAGE.format(titles=titles))
        (tmp_path / "main.py").write_text(MAIN)
        at = AppTest.from_file(str(tmp_path / "main.py"), default_timeout=SLOW)
        for key, value in query.items():
            at.query_params[key] = value
        return at.run()

    return opened


@pytest.mark.full
def test_both_runs_are_drawn_with_their_numbers(open_view: Any, measured: Path) -> None:
    at = open_view(measured, TIES, LWPTV)
    assert not at.exception
    assert charts(at) == 3
    said = words(at)
    assert f"In domain: n = {len(tiny.EXPERTS) * tiny.REPORTING} images of the reporting half" in said
    assert "bootstrap of images within data sets, 10,000 resamples, seed 0" in said and "Precomputed on CPU." in said
    at.selectbox(key="image_group").select("Letters").run()
    assert not at.exception and f"Letters: n = {tiny.REPORTING} images" in words(at)
    at = open_view(
        measured, TIES, image_group="Tiles", depth_metric="accuracy when read out", token_model="the pretrained model"
    )
    assert at.selectbox(key="image_group").value == "Tiles" and "Early depths were never trained" in words(at)


def test_a_click_on_a_cell_lists_its_images(open_view: Any, measured: Path) -> None:
    ties = runs(measured)[TIES]
    at = open_view(measured, TIES, LWPTV, run=ties.id)
    counts = measurements.find_measurement("depths", ties.id).table("turns")
    row = counts[counts["over"] == "digits"].sort_values("share").iloc[-1]
    at = click(at, "data_set_tasks", "digits", str(row["depth"]))
    assert not at.exception
    count, depth = round(row["share"] * row["n"]), row["depth"]
    assert f"**{count} images**: Digits, the answer stays from depth {depth:.0f} on" in words(at)
    links = [one.proto.query_string for one in at.get("page_link")]
    assert links and all("image=digits%3Areporting%3A" in link and f"runs={ties.id}" in link for link in links)
    assert at.selectbox(key="listed_data_set").value == "Digits" and at.selectbox(key="depth").value == row["depth"]
    assert at.session_state["_found_images"][1] == [f"digits:reporting:{link.split('%3A')[2].split('&')[0]}"
                                                   for link in links]  # fmt: skip
    at = open_view(
        measured, TIES, run=ties.id, cell_metric="what restoring fixes", listed_data_set="Tiles", **{"depth": "1"}
    )
    assert not at.exception and "Tiles, fixed by the class token before block 1" in words(at)


@pytest.mark.full
def test_what_is_not_measured_can_be(open_view: Any, measured: Path) -> None:
    at = open_view(measured, TIES, "Weight Averaging")
    assert not at.exception and charts(at) == 3
    assert "Answers by depth have not been measured for **Weight Averaging**" in words(at)
    assert [button.label for button in at.button if button.label == "Measure"]
    at = open_view(measured)
    assert "Choose a merge above" in words(at) and not charts(at)


def test_tables_are_those_of_the_measurement(open_view: Any, measured: Path) -> None:
    open_view(measured, TIES)
    run = runs(measured)[TIES]
    found = measurements.find_measurement("depths", run.id)
    table = data_set_tables.build_depth_table([(run, found)], "accuracy", "digits")
    own = found.table("accuracy").query("over == 'digits'")
    assert table[table["kind"] == "run"]["share"].tolist() == own[own["model"] == "run"]["accuracy"].tolist()
    assert set(table[table["kind"] == "reference"]["label"]) == {"Own expert"}
    outside = data_set_tables.build_depth_table([(run, found)], "accuracy", "out of domain")
    assert set(outside["label"]) == {run.name, "Pretrained"}
    mended = data_set_tables.build_mended_table([(run, found)], "in domain", "pretrained")
    known = found.table("mended").query("over == 'in domain' and donor == 'pretrained'")
    assert mended["share"].tolist() == known["share"].tolist() and set(mended["tokens"]) == {"class", "patches", "all"}
    cells = data_set_tables.build_task_table(run, found, "mended")
    assert set(cells["task"]) == {*tiny.EXPERTS, *tiny.OUTSIDE} and len(cells) == 6 * (tiny.LAYERS + 1)
