"""Experts against experts on the Conflicts page: asked for, clicked, by layer and by value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny_library
from page_harness import charts, click, press, words
from streamlit.testing.v1 import AppTest

from merging.images.benchmarks.benchmark import Benchmark
from merging.study import measure
from merging.study.analysis import measurement_subject
from merging.study.runs.run_store import Store
from merging.tasks.context import Context

VIEW = "experts against experts"


# The page


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library whose experts are compared."""
    folder = tiny_library.write(tmp_path_factory.mktemp("compared"), ("ties",))
    store = Store(folder / "measuring", libraries=(folder / "runs",), dated=False)
    run = next(run for run in store.list_runs() if run.recipe is not None)
    measure.measure("pairs", store, Benchmark.load(folder), run.id, context=Context(device="cpu"))
    (folder / "measuring" / measurement_subject.FOLDER).rename(folder / measurement_subject.FOLDER)
    return folder


def test_the_page_asks_before_it_measures(open_app: Any, library: Path, asked: list[tuple[str, str]]) -> None:
    at = open_app("conflicts", library, conflicts_view=VIEW)
    assert not at.exception and charts(at) == 0
    assert "have not been compared" in words(at)
    press(at, "Measure")
    assert [key for key, _ in asked] == ["pairs"]


def test_a_click_on_a_pair_shows_it_by_depth(open_app: Any, compared: Path) -> None:
    at: AppTest = open_app("conflicts", compared, conflicts_view=VIEW)
    assert not at.exception
    assert charts(at) == 1 and "Precomputed" in words(at) and "average-linkage clustering on 1 − cosine" in words(at)
    at = click(at, "pair_matrix", "digits", "leaves")
    assert not at.exception
    assert charts(at) == 2
    assert at.selectbox(key="first_expert").value == "digits" and at.selectbox(key="second_expert").value == "leaves"
    assert "**Digits** and **Leaves**, tensor by tensor" in words(at)


def test_one_layer_and_the_other_values(open_app: Any, compared: Path) -> None:
    layer = "visual.transformer.resblocks.1.mlp.c_fc.weight"
    query = {
        "pair_metric": "overlap of masks",
        "scope": "one layer",
        "tensor": layer,
        "first_expert": "digits",
        "second_expert": "flags",
    }
    at = open_app("conflicts", compared, conflicts_view=VIEW, density="0.3", **query)
    assert not at.exception and charts(at) == 2
    said = words(at)
    assert "Independent masks share 17.6%" in said and "of the layer visual" in said
    at.selectbox(key="pair_metric").select("sign conflict").run()
    assert "the share in conflict" in words(at)
    at.selectbox(key="second_expert").select("digits").run()
    assert "two different experts" in words(at)
