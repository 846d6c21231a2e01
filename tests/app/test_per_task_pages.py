"""Merges that give one model per task on pages: scores, masks, and the result of a merge."""

from __future__ import annotations

import json
import time

import pytest
from page_harness import words
from per_task_merge import KEY

from app.reading import page_data
from merging.images.benchmarks.metrics import PER_TASK
from merging.recipes.recipe import Recipe
from merging.study.runs.execute import execute
from merging.study.runs.reference_models import find_references
from merging.study.runs.run_store import Store
from merging.tasks.context import Context

pytestmark = pytest.mark.usefixtures("doubles")


@pytest.fixture
def page(open_app, tiny_benchmark, tmp_path):
    """A function that opens a page on a store with one such run and one single model, and their ids."""
    store = Store(tmp_path / "store", libraries=())
    find_references(store, tiny_benchmark, context=Context(device="cpu"))
    runs = [
        execute(
            Recipe.build(key, {}, [], tiny_benchmark.pretrained, tiny_benchmark.experts, key.upper()),
            store,
            benchmark=tiny_benchmark,
        )
        for key in (KEY, "weight_averaging")
    ]

    def opened(name, **query):
        return open_app(name, tiny_benchmark.folder, **query)

    return opened, [run.id for run in runs]


def said(at):
    """All text on the page, without the backslashes that keep it from being markup."""
    return words(at).replace("\\", "")


@pytest.mark.full
def test_scores_mark_it_and_say_why(page):
    opened, ids = page
    at = opened("scores", runs=",".join(ids))
    assert not at.exception
    assert PER_TASK in at.info[0].value
    assert "into one model per task" in said(at)
    numbers = at.dataframe[0].value.set_index("run")["kind"]
    assert numbers[ids[0]] == "one model per task ‡"
    assert numbers[ids[1]] == "merge"
    assert any("one model per task" in option for option in at.multiselect(key="compare").options)
    drawn = [json.loads(chart.proto.spec) for chart in at.get("plotly_chart")]
    scatter, tasks, letters, storage = drawn
    marks = {trace["name"]: trace for trace in scatter["data"] if trace.get("mode") == "markers"}
    (marked,) = (trace for name, trace in marks.items() if "one model per task" in name)
    assert "DOUBLES" in marked["text"][0]
    assert "one model per task" in marked["text"][0]
    assert marked["marker"]["symbol"] != marks["Merge"]["marker"]["symbol"]
    assert "DOUBLES ‡" in letters["layout"]["yaxis"]["ticktext"]
    assert "DOUBLES (one model per task)" in {trace["name"] for trace in tasks["data"]}
    assert "DOUBLES (one model per<br>task)" in storage["layout"]["yaxis"]["ticktext"]


def test_scores_without_it_say_nothing(page):
    opened, ids = page
    at = opened("scores", runs=ids[1])
    assert not at.info
    assert "one model per task" not in said(at)


def test_masks_of_it_count_all_models(page):
    opened, ids = page
    at = opened("masks", run=ids[0])
    assert not at.exception
    assert "into one model per task" in said(at)
    at.segmented_control(key="source").set_value("weights").run()
    assert not at.exception
    assert "any of its models" in said(at)


def test_the_result_of_merging_says_so(page):
    opened, ids = page
    at = opened("merge")
    at.session_state["_started"] = [page_data.job_queue().submit(page_data.store().get_run(ids[0]).recipe).subject]
    limit = time.monotonic() + 60
    while any(job.is_live for job in page_data.job_queue().list_jobs()) and time.monotonic() < limit:
        time.sleep(0.2)
    at.run()
    assert not at.exception
    assert PER_TASK in said(at)


@pytest.mark.full
def test_scores_show_what_is_right_where_the_task_is_unknown(open_app, tiny_benchmark, tmp_path):
    store = Store(tmp_path / "store", libraries=())
    find_references(store, tiny_benchmark, context=Context(device="cpu"))
    recipe = Recipe.build("tsv_m", {}, [], tiny_benchmark.pretrained, tiny_benchmark.experts, adapt="mass")
    run = execute(recipe, store, benchmark=tiny_benchmark)
    at = open_app("scores", tiny_benchmark.folder, runs=run.id)
    assert not at.exception
    (shown,) = (frame.value for frame in at.dataframe if "own_head" in frame.value)
    table = run.table("task_unknown")
    table = table[table["split"] == "reporting"]
    assert shown["accuracy"].tolist()[:-1] == (100 * table["accuracy"]).tolist()
    assert shown["accuracy"].iloc[-1] == pytest.approx(100 * table["accuracy"].mean())
    mean = shown.iloc[-1]
    half = table.assign(half=(table["high"] - table["low"]) / 2)["half"]
    width = 100 * (half**2).sum() ** 0.5 / len(half)  # about what independent intervals give
    assert mean["low"] < mean["accuracy"] < mean["high"]
    assert mean["high"] - mean["low"] == pytest.approx(2 * width, rel=0.25)
    assert (shown["accuracy"] <= shown["known"]).all() and "This score differs" in said(at)
