"""The runs in hand and the pinned ones go along on every page, and their colors stay theirs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
import streamlit as st
from compared_runs import EMR, LWPTV, TIES
from page_harness import AddressBar, click, go, named, own, picker, press, run_until_idle, runs, shown, words

from app.reading import page_data
from app.session import run_choice, run_styles
from app.widgets import chart_view
from app.widgets.jobs import shown_measurements
from merging.images.benchmarks.benchmark import Benchmark
from merging.study.analysis import measurement_store
from viz import theme
from viz.chosen_names import FAINT

TENSOR = "visual.transformer.resblocks.0.attn.out_proj.weight"
TOUR = ("conflicts", "drift", "features", "compare", "scores", "merge", "methods", "masks")
STYLES = theme.mark_styles([str(slot) for slot in range(12)])


def styles(at: Any, key: str) -> dict[str, str]:
    """The color of each run's marks in a chart on the page, by the run's name in the legend."""
    chart = next(chart for chart in at.get("plotly_chart") if chart.proto.id.endswith(f"chart_{key}"))
    traces = json.loads(chart.proto.spec)["data"]
    return {trace["name"]: trace["marker"]["color"] for trace in traces if trace.get("name") and "marker" in trace}


def in_hand(at: Any) -> list[str]:
    """The ids of the runs in hand, as the sidebar lists them."""
    prefix = "hand_put_down_"
    return [str(button.key).removeprefix(prefix) for button in at.button if str(button.key).startswith(prefix)]


def opening(at: Any) -> dict[str, list[str]]:
    """The names that open the page of a run, by the run's id."""
    names: dict[str, list[str]] = {}
    for link in at.get("page_link"):
        if link.proto.page == "run":
            names.setdefault(parse_qs(link.proto.query_string)["run"][0], []).append(link.proto.label)
    return names


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """An empty session without a page."""
    state: dict[str, Any] = {}
    monkeypatch.setattr(st, "session_state", state)
    monkeypatch.setattr(st, "query_params", AddressBar())
    return state


@pytest.mark.full
def test_a_run_goes_along_with_one_tensor_over_the_pages_and_back(open_app: Any, compared: Path) -> None:
    run = runs(compared)[TIES]
    at = open_app("masks", compared, run=run.id, tensor=TENSOR)
    for page in TOUR:
        go(at, page)
        assert in_hand(at) == [run.id] and any(name.startswith("**TIES") for name in opening(at)[run.id]), page
        assert (named(at, "run"), named(at, "tensor")) == ([run.id], [TENSOR]), page
    assert shown(at, "run") == [run.id]
    scores = page_data.summary(run, list(runs(compared).values()))
    assert f"in {100 * scores.in_domain:.1f}%" in words(at) and f"H {100 * scores.h_score:.1f}%" in words(at)


@pytest.mark.full
def test_a_second_run_joins_the_first_and_both_survive_link_and_reload(open_app: Any, compared: Path) -> None:
    first, second = (runs(compared)[title].id for title in (TIES, LWPTV))
    at = open_app("masks", compared, run=first)
    at.selectbox(key="picker").set_value(second).run()
    assert in_hand(at) == [second, first]  # the picker adds
    assert at.selectbox(key="picker").options[1].endswith(first[:6])  # the runs in hand come first
    for page in ("merge", "methods", "conflicts", "scores"):
        go(at, page)
        assert in_hand(at) == [second, first], page
        query = {key: ",".join(named(at, key)) for key in at.query_params}
        assert in_hand(open_app(page, compared, **query)) == [second, first], page
    assert shown(at, "runs") == [second, first]
    at.button(key=f"hand_focus_{first}").click().run()
    assert in_hand(at) == [first, second] and shown(go(at, "masks"), "run") == [first]
    at.button(key=f"hand_put_down_{first}").click().run()
    assert in_hand(at) == [second] and shown(at, "run") == [second] and "runs" not in at.query_params
    go(at, "conflicts", run=first)  # a link takes its run in hand beside the other
    assert in_hand(at) == [first, second]


def test_a_picker_of_several_runs_keeps_those_that_the_page_cannot_show(open_app: Any, compared: Path) -> None:
    ties, lwptv, emr = (runs(compared)[title].id for title in (TIES, LWPTV, EMR))
    at = open_app("features", compared, runs=f"{ties},{emr}")
    at.multiselect(key="features_runs").set_value([ties, lwptv]).run()
    assert in_hand(at) == [ties, lwptv, emr]


@pytest.mark.full
def test_names_in_the_sidebar_open_the_page_of_the_run(open_app: Any, compared: Path) -> None:
    ties, lwptv, emr = (runs(compared)[title].id for title in (TIES, LWPTV, EMR))
    at = open_app("methods", compared, runs=f"{ties},{lwptv}", pinned=emr)
    assert {run_id: len(names) for run_id, names in opening(at).items()} == {ties: 1, lwptv: 1, emr: 1}
    at = open_app("run", compared, runs=f"{ties},{lwptv}", run=ties)
    at.button(key=f"hand_open_{lwptv}").click().run()  # a page reads no second link
    assert in_hand(at) == [lwptv, ties] and shown(at, "run") == [lwptv]


@pytest.mark.full
def test_change_takes_another_run_in_hand(open_app: Any, compared: Path) -> None:
    known = runs(compared)
    at = open_app("scores", compared)
    assert not in_hand(at)
    at.selectbox(key="hand_change").set_value(known[EMR].id).run()
    assert in_hand(at) == [known[EMR].id] and at.selectbox(key="hand_change").value is None


def test_at_most_six_runs_are_in_hand(session: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(st, "toast", lambda sentence, icon: told.append(sentence))
    for run_id in "abcdef":
        run_choice.pick_run(run_id)
    assert run_choice.runs_in_hand() == list("fedcba") and not told
    run_choice.pick_run("g")
    assert run_choice.runs_in_hand() == list("gfedcb") and told == [run_choice.FULL_NOTE]
    run_choice.put_down("g")
    assert run_choice.runs_in_hand() == list("fedcb") and st.query_params["run"] == "f"


def test_a_run_of_ones_own_that_equals_one_of_the_library_is_the_same_run(
    open_app: Any, compared: Path, tmp_path: Path
) -> None:
    ties = runs(compared)[TIES].id
    twin = own(compared, tmp_path / "store", "ties", title="Mine")
    assert twin.id == ties
    at = open_app("masks", compared, run=twin.id)
    assert (
        in_hand(at) == [twin.id]
        and [option[-6:] for option in at.selectbox(key="picker").options].count(twin.id[:6]) == 1
    )


# Pins and colors


@pytest.mark.full
def test_a_pinned_run_keeps_its_color_in_all_charts_when_another_is_hidden(open_app: Any, compared: Path) -> None:
    ties, lwptv = (runs(compared)[title] for title in (TIES, LWPTV))
    at = open_app("scores", compared, runs=f"{lwptv.id},{ties.id}", pinned=f"{lwptv.id},,{ties.id}")
    third = STYLES["2"].color
    both = {key: styles(at, key) for key in ("id_ood_scatter", "task_accuracy")}
    assert {color for chart in both.values() for name, color in chart.items() if "TIES" in name} == {third}
    at.multiselect(key="compare").set_value([ties.id]).run()
    for key, colors in both.items():
        name = next(name for name in colors if "TIES" in name)
        assert styles(at, key)[name] == third, key
    go(at, "drift")
    assert next(color for name, color in styles(at, "drift_depth").items() if "TIES" in name) == third
    assert named(at, "pinned") == [lwptv.id, "", ties.id]


def test_a_run_without_a_pin_keeps_its_color_too_and_takes_none_of_a_pin(session: dict[str, Any]) -> None:
    assert run_styles.order_by_slot(["a", "b", "c"]) == ["a", "b", "c"]
    assert run_styles.order_by_slot(["b", "c"]).index("c") == 2  # a leaves a gap
    assert run_styles.order_by_slot(["d", "b"])[3] == "d"  # and nobody moves into it
    run_styles.pin_run("b")
    assert run_styles.pins() == ["", "b"] and st.query_params["pinned"] == ",b"
    run_styles.pin_run("e")
    assert run_styles.order_by_slot(["a", "b"])[1] == "b" and run_styles.order_by_slot(["a", "e"])[0] == "e"
    run_styles.unpin_run("b")
    assert run_styles.pins() == ["e"]
    assert len(set(run_styles.order_by_slot(list("abcdefghijkl")))) == 12


def test_a_pinned_run_has_its_color_as_a_or_b(open_app: Any, compared: Path, session: dict[str, Any]) -> None:
    assert run_styles.side_colors("a", "b") == (theme.RUN_A, theme.RUN_B)
    run_styles.pin_run("x")
    assert run_styles.side_colors("a", "b") == (theme.RUN_A, theme.RUN_B)
    run_styles.pin_run("b")
    assert run_styles.side_colors("a", "b") == (theme.FADED, STYLES["1"].color)
    assert run_styles.side_colors("b", "x") == (STYLES["1"].color, STYLES["0"].color)


def test_compare_draws_a_pinned_run_in_its_color(open_app: Any, compared: Path) -> None:
    ties, lwptv = (runs(compared)[title].id for title in (TIES, LWPTV))
    query = {"run": ties, "run_b": lwptv, "pinned": f",{lwptv},{ties}"}
    at = open_app("compare", compared, compare_view="charts", chart="saliency of one tensor", **query)
    chart = next(chart for chart in at.get("plotly_chart") if chart.proto.id.endswith("chart_compare_tensor"))
    edges = {trace["name"]: str(trace["marker"]) for trace in json.loads(chart.proto.spec)["data"]}
    assert STYLES["2"].color in edges["A"] and STYLES["1"].color in edges["B"]


@pytest.mark.full
def test_buttons_pin_and_unpin(open_app: Any, compared: Path) -> None:
    ties = runs(compared)[TIES].id
    at = open_app("masks", compared, run=ties)
    at.button(key=f"hand_pin_{ties}").click().run()
    assert named(at, "pinned") == [ties] and any("●" in str(one.proto.body) for one in at.get("html"))
    at.button(key=f"hand_put_down_{ties}").click().run()
    assert not in_hand(at) and "**Pinned**" in words(at)
    go(at, "scores")
    at.button(key=f"hand_focus_{ties}").click().run()
    assert in_hand(at) == [ties]
    at.button(key=f"hand_unpin_{ties}").click().run()
    assert "pinned" not in at.query_params


def test_experts_and_tasks_have_the_benchmarks_order(compared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MERGESCOPE_BENCHMARK", str(compared))
    experts = list(Benchmark.load(compared).experts)
    fixed = chart_view.fix_colors("saliency_tensor", {"experts": experts[2:]})
    assert fixed["experts"][: len(experts)] == experts
    tasks = chart_view.fix_colors("entropy_loss", {"tasks": experts[:1]})["tasks"]
    assert tasks == fixed["experts"] and set(tasks) >= {task.key for task in Benchmark.load(compared).tasks}
    assert chart_view.fix_colors("saliency_tensor", {"experts": ["own"]})["experts"] == ["own"]
    assert chart_view.fix_colors("saliency_tensor", {"experts": [experts[1], "own"]})["experts"][-1] == "own"


# Measured without asking


class Closed:
    """A page that nobody looks at."""

    def run(self) -> None: ...


@pytest.mark.full
def test_a_started_run_is_taken_in_hand_and_measured(open_app: Any, compared: Path) -> None:
    at = open_app("merge", compared, chain="task_arithmetic:scaling=0.25")
    box = next(box for box in at.checkbox if box.label.startswith("with everything that pages show, about "))
    assert not box.value and re.search(
        r"\b[23] min\b", box.label
    )  # a guess: signs and pairs are stored for these experts
    box.check().run()
    at.button(key="run_button").click().run()
    run_id = at.session_state["_watched"]
    for _ in range(2):  # six jobs may take long on a busy machine
        run_until_idle(Closed())  # the browser is closed before the merge ends
    kinds = {job.kind for job in page_data.job_queue().list_jobs() if job.subject == run_id}
    assert {"drift", "features", "first_order", "depths"} <= kinds and "put_back" not in kinds
    assert not shown_measurements.list_missing(page_data.store().get_run(run_id))
    assert in_hand(at.run()) == [run_id]


@pytest.mark.full
def test_the_measurements_are_cancelled_apart_from_the_run(open_app: Any, compared: Path) -> None:
    at = open_app("merge", compared, chain="task_arithmetic:scaling=0.35")
    next(box for box in at.checkbox if box.label.startswith("with everything")).check()
    at.button(key="run_button").click().run()
    run_id = at.session_state["_watched"]
    press(at, "Do not measure it afterwards")
    at = run_until_idle(at)
    assert in_hand(at) == [run_id] and len(shown_measurements.list_missing(page_data.store().get_run(run_id))) > 4
    assert {job.kind for job in page_data.job_queue().list_jobs() if job.subject == run_id} == {"merge"}


def test_measurements_of_less_than_two_minutes_are_on_by_default(
    open_app: Any, compared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measurement_store, "expect_seconds", lambda key, root: 3.0)
    at = open_app("merge", compared, chain="task_arithmetic:scaling=0.35")
    box = next(box for box in at.checkbox if box.label.startswith("with everything"))
    assert box.value and box.label.endswith("about 18 s more")  # six of 3 s


@pytest.mark.full
def test_one_button_measures_all_that_is_missing(open_app: Any, compared: Path, tmp_path: Path) -> None:
    run = own(compared, tmp_path / "store", "weight_averaging")
    at = open_app("drift", compared, run=run.id, runs=run.id)
    button = next(button for button in at.button if button.label.startswith("Measure all that pages show, about "))
    button.click().run()
    kinds = {job.kind for job in page_data.job_queue().list_jobs() if job.subject == run.id}
    assert {"drift", "features"} <= kinds
    at = run_until_idle(at)
    assert not shown_measurements.list_missing(run) and not any("Measure all" in str(one.label) for one in at.button)


# Selections meet


def frames(at: Any, key: str) -> list[dict[str, Any]]:
    """The frames around what is selected in a chart on the page."""
    chart = next(chart for chart in at.get("plotly_chart") if chart.proto.id.endswith(f"chart_{key}"))
    shapes = json.loads(chart.proto.spec)["layout"].get("shapes", [])
    return [shape for shape in shapes if shape.get("name") == "selected"]


@pytest.mark.full
def test_the_chosen_tensor_and_expert_are_framed_where_they_are_drawn(open_app: Any, compared: Path) -> None:
    both = [runs(compared)[title].id for title in (TIES, LWPTV)]
    query = {"compare_view": "charts", "chart": "saliency", "run": both[0], "run_b": both[1], "tensor": TENSOR}
    at = open_app("compare", compared, **query)
    assert [one["yref"] for one in frames(at, "compare_cells")] == ["y domain", "y2 domain", "y3 domain"]
    assert "Chosen tensor" not in words(at)
    at = open_app("scores", compared, expert="digits")
    (frame,) = frames(at, "task_accuracy")
    assert frame["yref"] == "y" and "Chosen expert" not in words(at)
    assert not frames(open_app("scores", compared), "task_accuracy")


@pytest.mark.full
def test_an_expert_clicked_on_the_scores_is_chosen_if_there_is_one(open_app: Any, compared: Path) -> None:
    run = runs(compared)[TIES].id
    at = click(open_app("scores", compared, runs=run), "task_accuracy", run, "digits")
    assert named(at, "expert") == ["digits"]
    assert frames(at, "task_accuracy")
    outside = next(task.key for task in Benchmark.load(compared).tasks if task.key not in run_experts(compared))
    at = click(at, "task_accuracy", run, outside)
    assert named(at, "expert") == ["digits"]  # no expert was trained on it


def run_experts(folder: Path) -> list[str]:
    return list(Benchmark.load(folder).experts)


def test_a_class_is_chosen_on_the_map_and_marked_on_other_pages(open_app: Any, compared: Path) -> None:
    both = ",".join(runs(compared)[title].id for title in (TIES, LWPTV))
    outside = next(task for task in Benchmark.load(compared).tasks if task.key not in run_experts(compared))
    at = open_app("features", compared, runs=both, data_set=outside.title, map="PCA")
    name = outside.class_names[0]
    picker(at, "class_name").set_value(name).run()
    assert named(at, "class_name") == [name]
    chart = next(chart for chart in at.get("plotly_chart") if chart.proto.id.endswith("chart_feature_map"))
    traces = [
        trace for trace in json.loads(chart.proto.spec)["data"] if str(trace.get("legendgroup")).startswith("class ")
    ]
    assert {trace["legendgroup"] for trace in traces if trace.get("opacity") != FAINT} == {f"class {name}"}
    assert "Chosen class" not in words(at)
    assert f"Chosen class: **{name}**" in words(go(at, "methods"))
    at.button(key="clear_selection").click().run()
    assert "class_name" not in at.query_params
