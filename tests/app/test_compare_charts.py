"""The Compare page: every chart of two runs, and of a run and what is no merge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import viz_tables
from compared_runs import CAT, EMR, FEW, LWPTV, PRETRAINED, TIES, link_to_both
from page_harness import charts, press, runs, words

import viz
from app.reading import measurements
from app.views.compare import chart_cells, other_charts, run_pair
from app.views.compare import difference_maps as compare_charts
from app.views.compare.difference_maps import FEATURE_CHARTS, HEAT_MAPS, OWN_FIGURES
from merging.images.benchmarks.benchmark import Benchmark
from merging.models.formats.model_sources import open_checkpoint

# Charts


OF_EXPERTS = [name for name, shown in HEAT_MAPS.items() if shown.depends_on_experts_only]
SHOWN = [name for name in HEAT_MAPS if name not in (*OF_EXPERTS, "masks", "what CAT removes")]


@pytest.mark.full
def test_charts_of_both_runs(open_app: Any, compared: Path) -> None:
    """One after another on the same page, as somebody would look at them."""
    at = open_app("compare", compared, **link_to_both(compared), compare_view="charts")
    for name in SHOWN:
        at.selectbox(key="chart").set_value(name).run()
        assert not at.exception and not at.error, name
        assert charts(at) == 1, name
        assert "A and B share one range of colors" in words(at)
    for name in (*OWN_FIGURES, *FEATURE_CHARTS):
        at.selectbox(key="chart").set_value(name).run()
        assert not at.exception and charts(at) == (4 if name == "joint space of DRM" else 1), name


def test_the_report_tells_charts_of_two_runs_apart(open_app: Any, compared: Path) -> None:
    at = open_app("compare", compared, **link_to_both(compared), compare_view="charts")
    for name in ("kept share", "saliency"):
        at.selectbox(key="chart").set_value(name).run()
        press(at, "Add to report")
    titles = [kept.view.title for kept in at.session_state["_report_keeper"].read_draft().views]
    assert titles == ["Kept share: where do the two runs differ?", "Saliency: where do the two runs differ?"]


def test_charts_between_a_run_and_itself_do_not_differ(look: Any, compared: Path) -> None:
    at = look("compare", compared, **link_to_both(compared, LWPTV, LWPTV), compare_view="charts", chart="masks")
    assert not at.exception
    assert "The two runs do not differ in any cell" in words(at)


LACKING = [
    ("masks", "has no masks of tensors. Chains with LwPTV have them"),
    ("what CAT removes", "did not record the share that CAT removes"),
    ("drift by depth", f"Feature drift has not been measured for **{CAT}**"),
    ("drift against accuracy", f"Feature drift has not been measured for **{CAT}**"),
    ("sign agreement", "Both runs merge the same experts"),
    ("feature maps", f"have not been extracted for **{CAT}**"),
]


@pytest.mark.full
def test_charts_that_a_run_lacks(open_app: Any, compared: Path) -> None:
    at = open_app("compare", compared, **link_to_both(compared, TIES, CAT), compare_view="charts")
    for name, says in LACKING:
        at.selectbox(key="chart").set_value(name).run()
        assert not at.exception and charts(at) == 0, name
        assert says in words(at).replace("\\", "")
    at = open_app(
        "compare", compared, **link_to_both(compared, TIES, EMR), compare_view="charts", chart="distance to pretrained"
    )
    assert "one model per task has none for other data sets" in words(at) and charts(at) == 0


@pytest.mark.full
def test_charts_of_runs_on_other_experts(open_app: Any, compared: Path) -> None:
    at = open_app("compare", compared, **link_to_both(compared, TIES, FEW), compare_view="charts")
    for name in ("layer-isolated drift", "saliency", *OF_EXPERTS):
        at.selectbox(key="chart").set_value(name).run()
        assert not at.exception and charts(at) == 1, name
        assert ("that only one run has are left out" in words(at)) == (name != "sign agreement")


def test_the_chart_draws_the_tables_of_both_runs(open_app: Any, compared: Path) -> None:
    open_app("compare", compared)
    known = runs(compared)
    for name in ("kept share", "saliency", "change of the weights"):
        one, other = (HEAT_MAPS[name].make_cells(known[title], None).table for title in (TIES, LWPTV))
        assert one is not None and other is not None
        table, left_out = compare_charts.join_cells(one, other)
        assert not left_out and len(table) == len(one) == len(other)
        limits = compare_charts.find_value_range(table, HEAT_MAPS[name].log_scale)
        percents, points = HEAT_MAPS[name].in_percent, 100 if HEAT_MAPS[name].in_percent else 1
        fig = viz.draw("compare_cells", table, limits=limits, log=HEAT_MAPS[name].log_scale, percents=percents)
        a, b, change = (trace for trace in fig.data if trace.name in ("A", "B", "B − A"))
        assert (a.zmin, a.zmax) == (b.zmin, b.zmax) and change.zmin == -change.zmax
        order = [pick[1] for pick in fig.data[3].customdata[: a.z.shape[1]]]
        first = table[table["row"] == table["row"].iloc[0]].set_index("tensor").loc[order]
        np.testing.assert_allclose(change.z[0], points * (first["b"] - first["a"]), rtol=1e-5, atol=1e-9)


def test_cosines_of_experts_are_those_of_their_task_vectors(open_app: Any, compared: Path) -> None:
    open_app("compare", compared)
    run, benchmark = runs(compared)[FEW], Benchmark.load(compared)
    table = chart_cells.pair_cells(run, measurements.find_measurement(measurements.EXPERT_PAIRS, run.id)).table
    assert table is not None and table["row"].nunique() == 3  # of three experts
    base, experts = open_checkpoint(benchmark.pretrained), benchmark.experts
    for row in table.sample(20, random_state=0).to_dict("records"):
        one, other = (
            (open_checkpoint(experts[name]).read(row["tensor"]).double() - base.read(row["tensor"]).double()).flatten()
            for name in row["row"].split("\n")
        )
        assert row["value"] == pytest.approx(float(one @ other / one.norm() / other.norm()), rel=1e-5, abs=1e-7)


def test_one_tensor_is_what_the_runs_scored(open_app: Any, compared: Path) -> None:
    tensor = "visual.transformer.resblocks.1.mlp.c_fc.weight"
    link = {"compare_view": "charts", "chart": "saliency of one tensor", "tensor": tensor}
    at = open_app("compare", compared, **link_to_both(compared, CAT, LWPTV), **link)
    assert not at.exception and charts(at) == 1
    assert at.selectbox(key="tensor").value == tensor
    table, stored = at.dataframe[0].value.set_index("expert"), runs(compared)[LWPTV].table("saliency")
    own = stored[stored["tensor"] == tensor].set_index("expert")
    assert [name.lower() for name in table.index] == list(own.index) and table["merged_a"].all()
    np.testing.assert_allclose(table["b"], own["saliency"])
    assert list(table["merged_b"]) == list(own["final"])
    np.testing.assert_allclose(table["difference"], table["b"] - table["a"], atol=1e-12)


def test_panels_of_one_tensor_share_their_axis() -> None:
    table = viz_tables.compare_tensor(5)
    fig = viz.draw("compare_tensor", table)
    a, b, change = (next(trace for trace in fig.data if trace.name == name) for name in ("A", "B", "B − A"))
    for trace, column in ((a, "a"), (b, "b"), (change, "difference")):
        np.testing.assert_allclose(trace.x, table[column], rtol=1e-6)
    assert fig.layout.xaxis.range == fig.layout.xaxis2.range and fig.layout.xaxis.range[0] == 0
    assert fig.layout.xaxis3.range[0] == -fig.layout.xaxis3.range[1]
    assert [color == "white" for color in b.marker.color] == list(~table["merged_b"])


def test_a_joint_space_of_the_same_experts_is_shown_once_and_others_beside(look: Any, compared: Path) -> None:
    link = {"compare_view": "charts", "chart": "joint space of DRM"}
    at = look("compare", compared, **link_to_both(compared), **link)
    assert not at.exception and charts(at) == 4 and "it is shown once" in words(at)
    at = look("compare", compared, **link_to_both(compared, TIES, FEW), **link)
    assert not at.exception and not at.error and charts(at) == 1
    assert "of 4 and 3 experts of A and B" in words(at)


def test_spectra_of_two_runs_share_their_axes() -> None:
    table = viz_tables.compare_spectrum(9)
    a, b, change = viz.draw("compare_spectrum", table).data
    assert (a.yaxis, b.yaxis, change.yaxis) == ("y", "y", "y2") and (len(a.x), len(b.x)) == (9, 8)
    np.testing.assert_allclose(change.y, (table["b"] - table["a"]).dropna(), rtol=1e-6)


def test_drift_against_accuracy_has_an_arrow_for_every_task(open_app: Any, compared: Path) -> None:
    link = {"compare_view": "charts", "chart": "drift against accuracy"}
    at = open_app("compare", compared, **link_to_both(compared), **link)
    assert not at.exception and charts(at) == 1
    table, known = at.dataframe[0].value.set_index("title"), runs(compared)
    scores = [known[title].scores for title in (TIES, LWPTV)]
    one, other = (rows[rows["split"] == "reporting"].set_index("title") for rows in scores if rows is not None)
    for title, row in table.iterrows():
        lost = 100 * (one.loc[title, "accuracy"] - other.loc[title, "accuracy"])
        assert row["lost"] == pytest.approx(lost) and row["drift"] == pytest.approx(row["drift_b"] - row["drift_a"])
    of = run_pair.RunPair(known[TIES], known[LWPTV])
    found = other_charts.find_measurements(measurements.DRIFT, of.runs)
    assert found is not None and len(table) == len(tiny.EXPERTS)
    points = other_charts.build_drift_points(of, found)
    fig = viz.draw("drift_accuracy", points, arrows=True)
    drawn = {(arrow.ax, arrow.ay, arrow.x, arrow.y) for arrow in fig.layout.annotations if arrow.name == "arrow"}
    a, b = (points[points["run"] == run.id].set_index("task") for run in of.runs)
    assert drawn == {
        (a.at[task, "cosine"], 100 * a.at[task, "lost"], b.at[task, "cosine"], 100 * b.at[task, "lost"])
        for task in tiny.EXPERTS
    }


def test_drift_against_accuracy_of_a_run_and_itself_and_of_other_experts(look: Any, compared: Path) -> None:
    link = {"compare_view": "charts", "chart": "drift against accuracy"}
    at = look("compare", compared, **link_to_both(compared, TIES, TIES), **link)
    assert not at.exception and charts(at) == 1
    assert not at.dataframe[0].value[["drift", "lost"]].to_numpy().any()
    at = look("compare", compared, **link_to_both(compared, TIES, FEW), **link)
    assert not at.exception and charts(at) == 1
    assert len(at.dataframe[0].value) == 3


# Models that were not merged


def test_a_merge_is_compared_with_the_pretrained_model(open_app: Any, compared: Path) -> None:
    known = runs(compared)
    at = open_app("compare", compared, **link_to_both(compared, TIES, PRETRAINED))
    assert not at.exception and charts(at) == 1
    assert "B is not" in words(at) and not [button for button in at.button if "Swap" in button.label]
    rows = at.dataframe[0].value.set_index("title")
    scores = {
        title: run.scores[run.scores["split"] == "reporting"] for title, run in known.items() if run.scores is not None
    }
    for title, side in ((TIES, "score_a"), (PRETRAINED, "score_b")):
        inside = scores[title][scores[title]["task"].isin(known[TIES].experts)]["accuracy"].mean()
        assert rows.loc["Mean in domain", side].startswith(f"{100 * inside:.1f}%")
    assert not rows["interval"].str.contains("—").any()  # its answers are measured like a run's
    at.button_group(key="compare_view").set_value("charts").run()
    assert not at.exception and charts(at) == 1
    assert at.selectbox(key="chart").options == ["drift by depth", "feature maps"]
    at.selectbox(key="chart").set_value("feature maps").run()
    assert not at.exception and charts(at) == 1 and "Swap" not in words(at)


def test_a_merge_is_compared_with_an_expert(open_app: Any, compared: Path) -> None:
    expert = next(run for run in runs(compared).values() if run.kind == "expert")
    at = open_app(
        "compare", compared, run=runs(compared)[TIES].id, run_b=expert.id, compare_view="charts", chart="kept share"
    )
    assert not at.exception and charts(at) == 0
    assert at.selectbox(key="chart").options == ["distance to pretrained", "feature maps"]
    assert "have not been extracted for" in words(at) and expert.id in at.selectbox(key="other").value


def test_drift_of_the_pretrained_model_is_what_the_drift_page_shows(open_app: Any, compared: Path) -> None:
    open_app("compare", compared)
    of = run_pair.RunPair(runs(compared)[TIES], runs(compared)[PRETRAINED])
    found = measurements.find_measurement(measurements.DRIFT, of.a.id)
    assert found is not None
    mine, theirs = chart_cells.drift_cells(of.a, found), chart_cells.pretrained_drift_cells(of.a, found)
    assert mine.table is not None and theirs.table is not None
    table, left_out = compare_charts.join_cells(mine.table, theirs.table)
    assert len(table) and not left_out
    stored = found.table("cumulative")
    stored = stored[stored["token"] == "class"].set_index(["model", "task", "place"])["cosine"]
    for row in table.to_dict("records"):
        assert (row["a"], row["b"]) == tuple(
            stored[model, row["row"], row["tensor"]] for model in ("merged", "pretrained")
        )
