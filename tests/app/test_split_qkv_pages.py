"""Pages on runs whose methods split query, key and value: masks, painting, layer figures, comparisons."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from compared_runs import LWPTV
from page_harness import charts, click, picker, runs, words

from app.session.painting_state import PAINTING_KEY
from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.recipe import Recipe
from merging.study.runs.execute import execute
from merging.study.runs.run_store import Store

WHOLE = "visual.transformer.resblocks.1.attn.in_proj_weight"
KEY = f"{WHOLE}[key]"
MASKED, TRIMMED, LEARNED = "Masked in thirds", "Trimmed in thirds", "Learned in thirds"
CHAINS: dict[str, tuple[str, dict[str, Any], list[tuple[str, dict[str, Any]]]]] = {
    MASKED: ("task_arithmetic", {}, [("lwptv", {"split_qkv": True})]),
    TRIMMED: ("task_arithmetic", {}, [("cat", {"split_qkv": True})]),
    LEARNED: ("adamerging", {"split_qkv": True, "steps": 2}, []),
}


@pytest.fixture(scope="module")
def folder(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The small library with a run of every chain."""
    copy = tmp_path_factory.mktemp("split_qkv") / "library"
    shutil.copytree(library, copy)
    benchmark, making = Benchmark.load(copy), Store(copy / "more", libraries=(), dated=False)
    for title, (merge, params, edits) in CHAINS.items():
        recipe = Recipe.build(merge, params, edits, benchmark.pretrained, benchmark.experts, title)
        run = execute(recipe, making, benchmark=benchmark, keep_model=False)
        shutil.copytree(run.path, copy / "runs" / run.id)
    yield copy


@pytest.mark.full
def test_masks_show_thirds_and_paint_whole_tensors(open_app: Any, folder: Path) -> None:
    run = runs(folder)[MASKED]
    at = open_app("masks", folder, run=run.id)
    assert not at.exception and charts(at) == 2
    assert "of 40 tensors" in words(at)
    click(at, "saliency_matrix", "digits", KEY)
    assert picker(at, "tensor").value == KEY and charts(at) == 3
    assert f"**{KEY}**, 256 scalars, linear in block 1" in words(at).replace("\\", "")
    assert "Query, key and value are one tensor" in words(at)  # what is put back is the whole one
    at.toggle(key="painting").set_value(True).run()
    assert not at.exception and "masks query, key and value separately" in words(at)
    assert picker(at, "tensor").value == WHOLE
    painting = at.session_state[PAINTING_KEY].painting
    assert len(painting.tensors) == 32 and WHOLE in painting.tensors
    click(at, "manual_canvas", "digits", WHOLE, "", "")
    assert at.query_params["painted_factors"] == "b1/t.*.attn.in_proj_weight/e.digits=0"


@pytest.mark.full
def test_a_chosen_third_is_its_tensor_on_other_pages_and_back(open_app: Any, folder: Path) -> None:
    both = runs(folder)
    at = open_app("masks", folder, run=both[LWPTV].id, tensor=KEY)
    assert not at.exception and picker(at, "tensor").value == WHOLE
    assert "not among these" not in words(at)
    at = open_app("masks", folder, run=both[MASKED].id, tensor=WHOLE)
    assert picker(at, "tensor").value == f"{WHOLE}[query]"
    at = open_app("masks", folder, run=both[MASKED].id, tensor=f"{WHOLE}[none]")
    assert picker(at, "tensor").value is None and "not among these" in words(at)


@pytest.mark.parametrize(
    ("page", "title", "query", "chart"),
    [
        ("drift", TRIMMED, {"drift_view": "what CAT removes"}, "drift_removed"),
        ("learning", LEARNED, {"learning_view": "coefficients"}, "coefficient_map"),
        ("features", MASKED, {}, ""),
    ],
)
def test_other_pages_draw_them(
    open_app: Any, folder: Path, page: str, title: str, query: dict[str, str], chart: str
) -> None:
    run = runs(folder)[title].id
    at = open_app(page, folder, run=run, runs=run, **query)
    assert not at.exception and not at.error
    drawn = {element.proto.id.rpartition("chart_")[2]: element.proto.spec for element in at.get("plotly_chart")}
    if chart:
        assert "in_proj_weight[value]" in drawn[chart]


@pytest.mark.parametrize("shown", ["masks", "saliency", "saliency of one tensor"])
def test_comparing_with_a_packed_run_says_what_is_left_out(open_app: Any, folder: Path, shown: str) -> None:
    both = runs(folder)
    at = open_app("compare", folder, run=both[MASKED].id, run_b=both[LWPTV].id, compare_view="charts", chart=shown)
    assert not at.exception and not at.error
    assert ("cells that only one run has" in words(at)) == (shown != "saliency of one tensor")


def test_a_report_begins_with_masks_of_thirds(open_app: Any, folder: Path) -> None:
    at = open_app("report", folder)
    at.selectbox(key="starter_run").set_value(runs(folder)[MASKED].id).run()
    at.button(key="starter_add").click().run()
    assert not at.exception
    views = {kept.view.key: kept.view for kept in at.session_state["_report_keeper"].read_draft().views}
    assert "of 40 tensors" in views["saliency_matrix"].caption
    assert KEY in set(views["saliency_matrix"].table["tensor"])
