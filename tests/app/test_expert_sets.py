"""A picture of averages shows runs and references of one set of experts; runs of another set are listed under it."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import viz_tables
from compared_runs import EMR, FEW, LWPTV, TIES, TIES_NAMED, link_to_both, read_warnings
from page_harness import chart_specs, press, runs, words
from streamlit.testing.v1 import AppTest

from app.reading import page_data, score_tables
from app.session.report_draft import ReportDraft
from app.views.compare import recipe_lines
from app.widgets.run_picker import group_by_models
from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.recipe import Recipe
from merging.study.runs.execute import execute
from merging.study.runs.run import have_same_models
from merging.study.runs.run_store import Store
from viz import draw
from viz.chart import ChartError

ADD, SWITCH = "Add to report", "Show these instead"


def marks(at: AppTest) -> dict[str, float]:
    """Name and in-domain accuracy of every mark of the first chart of a page."""
    traces = json.loads(at.get("plotly_chart")[0].proto.spec)["data"]
    rows = [
        (text, x)
        for trace in traces
        if trace.get("text")
        for text, x in zip(trace["text"], decoded(trace["x"]), strict=True)
    ]
    return {text.split("</b>")[0].removeprefix("<b>"): round(float(x), 4) for text, x in rows}


def decoded(values: Any) -> Any:
    """The numbers of an axis, which plotly writes as base64."""
    return np.frombuffer(base64.b64decode(values["bdata"]), values["dtype"]) if isinstance(values, dict) else values


def captions(at: AppTest) -> list[str]:
    draft: ReportDraft = at.session_state["_report_keeper"].read_draft()
    return [kept.view.caption for kept in draft.views]


def opened(open_app: Any, compared: Path, *titles: str) -> AppTest:
    known = runs(compared)
    at: AppTest = open_app("scores", compared, runs=",".join(known[title].id for title in titles))
    assert not at.exception and not at.error
    return at


@pytest.mark.full
def test_runs_of_other_experts_are_listed_and_can_be_shown_instead(open_app: Any, compared: Path) -> None:
    at = opened(open_app, compared, FEW, TIES, LWPTV)
    assert set(marks(at)) & {FEW, TIES_NAMED, LWPTV} == {FEW}
    few = marks(at)["Pretrained"]
    assert set(at.dataframe[0].value["label"]) & {FEW, TIES_NAMED, LWPTV} == {FEW}
    assert "**2** of the chosen runs merge other experts" in words(at)
    listed = words(at).replace("\\", "")
    assert "4 experts: Circles, " in listed and f"{TIES_NAMED}, {LWPTV}" in listed
    press(at, SWITCH)
    assert set(marks(at)) & {FEW, TIES_NAMED, LWPTV} == {TIES_NAMED, LWPTV}
    assert str(at.query_params["runs"]).strip("[]'").split(",")[-1] == runs(compared)[FEW].id
    assert "**1** of the chosen runs merges other experts" in words(at) and FEW in words(at)
    assert marks(at)["Pretrained"] != few  # the mean over other tasks
    press(at, SWITCH)
    assert marks(at)["Pretrained"] == few


@pytest.mark.full
def test_runs_of_the_same_experts_are_in_one_picture(open_app: Any, compared: Path) -> None:
    at = opened(open_app, compared, TIES, LWPTV)
    assert set(marks(at)) >= {TIES_NAMED, LWPTV}
    assert "other experts" not in words(at) and SWITCH not in [button.label for button in at.button]


@pytest.mark.full
def test_the_default_after_a_merge_of_few_holds_one_set(open_app: Any, compared: Path) -> None:
    at = open_app("scores", compared)
    shown = {run.title: run for run in runs(compared).values() if run.title in marks(at)}
    assert shown and len({run.experts for run in shown.values() if run.kind == "merge"}) == 1


def test_the_order_of_experts_makes_no_other_set(compared: Path) -> None:
    known = runs(compared)
    groups = group_by_models([known[TIES], known[FEW], known[LWPTV]])
    assert [[run.title for run in group] for group in groups] == [[TIES, LWPTV], [FEW]]


def test_compare_and_merge_find_the_same_runs_of_the_same_experts(
    open_app: Any, compared: Path, tmp_path: Path
) -> None:
    benchmark = Benchmark.load(compared)
    experts = dict(reversed(benchmark.experts.items()))
    recipe = Recipe.build("ties", {"density": 0.3}, [], benchmark.pretrained, experts)
    run = execute(recipe, Store(tmp_path / "store", libraries=()), benchmark=benchmark, keep_model=False)
    at = open_app("compare", compared, run=run.id)
    suggested = {str(button.key).removeprefix("beside_") for button in at.button if button.label == "Compare"}
    assert runs(compared)[TIES].id in suggested and "No other run merges" not in words(at)
    alike = [one for one in page_data.stored_runs() if have_same_models(run, one) and one.id != run.id]
    assert {
        other.id for other, _ in recipe_lines.find_nearest_runs(run, page_data.list_merges(page_data.stored_runs()))
    } == {one.id for one in alike}
    assert {one.id for one in group_by_models([run, *page_data.list_merges(page_data.stored_runs())])[0]} == {
        run.id,
        *(one.id for one in alike),
    }
    at = open_app(
        "compare", compared, run=run.id, run_b=runs(compared)[TIES].id, compare_view="charts", chart="sign agreement"
    )
    assert "this chart depends only on these" in words(at)


@pytest.mark.full
def test_what_a_picture_is_of_goes_with_it(open_app: Any, compared: Path) -> None:
    at = opened(open_app, compared, FEW, EMR)
    press(at, ADD)
    (caption,) = captions(at)
    assert "In domain are the tasks of the merged experts (3 experts: " in caption
    assert "for the reference models as for the merges" in caption and "One model per task" not in caption
    press(at, SWITCH)
    assert "Marked ‡" in words(at)
    press(at, ADD)
    assert "One model per task: it can only be used if" in captions(at)[1] and "4 experts" in captions(at)[1]


@pytest.mark.full
def test_a_table_says_whose_tasks_its_averages_are_over(open_app: Any, compared: Path) -> None:
    open_app("scores", compared)
    stored = page_data.stored_runs()
    run = next(run for run in stored if run.title == FEW)
    table = score_tables.averages_table([run], stored)
    assert set(table["experts"]) == {", ".join(run.experts)}
    figure = draw("id_ood_scatter", table)
    assert figure.layout.xaxis.title.text == "In-domain accuracy, mean over 3 tasks (%)"
    assert f"in domain: {', '.join(run.experts)}" in str(figure.data)


def test_a_picture_of_two_sets_is_refused() -> None:
    table = viz_tables.id_ood_scatter(4).assign(experts=["a, b", "b, a", "a, b", "a, b"])
    assert draw("id_ood_scatter", table)
    table.loc[0, "experts"] = "a, b, c"
    with pytest.raises(ChartError, match="one set of experts; the table has 2 sets"):
        draw("id_ood_scatter", table)


@pytest.mark.full
def test_the_warnings_of_compare_go_with_its_charts(open_app: Any, compared: Path) -> None:
    at = open_app("compare", compared, **link_to_both(compared, TIES, FEW))
    assert "They merge different experts" in read_warnings(at)
    press(at, ADD)
    assert "They merge different experts, 3 of which both merge" in captions(at)[0]
    at.switch_page("screens/scores.py").run()
    press(at, ADD)
    assert "They merge different experts" not in captions(at)[1]


@pytest.mark.full
def test_drift_shows_one_set(open_app: Any, compared: Path) -> None:
    known = runs(compared)
    at = open_app("drift", compared, runs=",".join(known[title].id for title in (FEW, TIES)))
    assert not at.exception
    assert "**1** of the chosen runs merges other experts" in words(at)
    names = {trace.get("name") for trace in json.loads(chart_specs(at)[0])["data"]}
    assert FEW in names and TIES_NAMED not in names


def test_features_shows_one_set(open_app: Any, compared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[list[str]] = []
    monkeypatch.setattr(
        "app.views.features.feature_tables.find_models_with_features",
        lambda runs, *_: (drawn.append([run.title for run in runs]), ([], []))[1],
    )
    known = runs(compared)
    at = open_app("features", compared, runs=",".join(known[title].id for title in (FEW, TIES, LWPTV)))
    assert not at.exception
    assert set(drawn[-1]) & {FEW, TIES_NAMED, LWPTV} == {FEW}
    assert "**2** of the chosen runs merge other experts" in words(at)
