"""The widget of previews: answers as they come, never one of another recipe, and never as a run's score."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import streamlit as st
from page_harness import charts, press, runs, words
from streamlit.testing.v1 import AppTest

import merging
from app.reading import page_data, previews
from app.widgets.panels import preview_panel
from app.widgets.panels.preview_panel import EARLIER_NOTE, LAST_LABEL, NO_INTERVALS_NOTE
from merging.images.benchmarks.benchmark import SPLITS, Benchmark
from merging.recipes.recipe import Recipe
from merging.study.previews.preview import Preview
from merging.study.previews.preview_process import PreviewRequest, PreviewState
from merging.study.runs.run_store import Store
from merging.study.sweeps.known_points import KnownPoints
from merging.study.sweeps.sweep import Axis, Sweep
from merging.study.sweeps.sweep_session import plan_sweep, run_sweep

CHAIN = "ties:density=0.9"  # is not stored
NASTY = "<b>bold</b> **x** $y$ :red[c]"


class StandIn:
    """A bench without a process: requests stay until the test answers them."""

    def __init__(self) -> None:
        self.states: dict[str, PreviewState] = {}
        self.asked: list[PreviewRequest] = []
        self.stopped = 0

    def send_request(self, session: str, asked: PreviewRequest) -> PreviewState:
        self.asked.append(asked)
        self.states[session] = PreviewState(asked)
        return self.states[session]

    def find_state(self, session: str, asked: PreviewRequest) -> PreviewState | None:
        state = self.states.get(session)
        return state if state is not None and state.request == asked else None

    def cancel(self, session: str) -> None:
        self.stopped += 1
        del self.states[session]

    def cancel_other(self, session: str, asked: PreviewRequest) -> None:
        state = self.states.get(session)
        if state is not None and not state.done and state.request != asked:
            self.cancel(session)

    def answer(self, **changes: Any) -> None:
        (session,) = self.states
        self.states[session] = replace(self.states[session], **changes)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    one = StandIn()
    monkeypatch.setattr(previews, "preview_process", lambda: one)
    return one


@pytest.fixture(scope="module")
def preview(library: Path) -> Preview:
    benchmark = Benchmark.load(library)
    recipe = Recipe.build("ties", {}, [], benchmark.pretrained, benchmark.experts, NASTY)
    return merging.preview(recipe, 8, benchmark=benchmark, device="cpu")


def switch(at: AppTest, label: str) -> AppTest:
    return next(toggle for toggle in at.toggle if toggle.label == label).set_value(True).run()


def test_answers_are_drawn_as_they_come(open_app: Any, library: Path, bench: StandIn, preview: Preview) -> None:
    at = open_app("merge", library, chain=CHAIN)
    assert not bench.asked and charts(at) == 0
    press(at, "Preview")
    assert not at.exception and len(bench.asked) == 1 and "first answer" in words(at)
    assert bench.asked[0].per_task is None and bench.asked[0].run == "" and "ties" in bench.asked[0].recipe
    bench.answer(preview=preview)
    at.run()
    assert "Preview (sampled)**: change against Pretrained; more images follow" in words(at)
    assert [metric.label for metric in at.metric] == ["In domain", "Out of domain", "H\\-score"] and charts(at) == 1
    bench.answer(preview=preview, done=True)
    at.run()
    assert "more images follow" not in words(at) and "Stop" not in {button.label for button in at.button}
    assert "<b>bold</b>" not in words(at) and "at most 8 images of each task of the choosing half" in words(at)
    assert "n = 48, seed 0" in words(at)


def test_a_change_takes_the_old_answer_away(open_app: Any, library: Path, bench: StandIn, preview: Preview) -> None:
    at = press(open_app("merge", library, chain=CHAIN), "Preview")
    bench.answer(preview=preview, done=True)
    at.run()
    at.slider[0].set_value(0.5).run()
    assert charts(at) == 0 and len(at.metric) == 0 and len(bench.asked) == 1
    at.slider[0].set_value(0.9).run()
    assert charts(at) == 1  # the very recipe that was previewed


def test_an_answer_that_comes_after_a_change_is_not_drawn(
    open_app: Any, library: Path, bench: StandIn, preview: Preview
) -> None:
    at = press(open_app("merge", library, chain=CHAIN), "Preview")
    at.slider[0].set_value(0.5).run()
    for done in (False, True):
        bench.answer(preview=preview, done=done)
        at.run()
        assert charts(at) == 0 and len(at.metric) == 0 and "more images follow" not in words(at)


def test_live_asks_nothing_while_a_chart_is_presented(open_app: Any, library: Path, bench: StandIn) -> None:
    at = switch(open_app("merge", library, chain=CHAIN), "live")
    at.toggle(key="presentation").set_value(True).run()
    at.slider[0].set_value(0.5).run()
    assert not at.exception and len(bench.asked) == 1
    at.toggle(key="presentation").set_value(False).run()
    assert len(bench.asked) == 2


def test_live_asks_at_every_change_and_survives_another_page(
    open_app: Any, library: Path, bench: StandIn, preview: Preview
) -> None:
    at = switch(open_app("merge", library, chain=CHAIN), "live")
    assert len(bench.asked) == 1
    at.slider[0].set_value(0.5).run()
    assert len(bench.asked) == 2 and bench.asked[0] != bench.asked[1]
    bench.answer(preview=preview, done=True)
    at.switch_page("screens/methods.py").run()
    at.switch_page("screens/merge.py").run()
    assert charts(at) == 1 and len(bench.asked) == 2 and next(t for t in at.toggle if t.label == "live").value
    press(at.slider[0].set_value(0.6).run(), "Stop")
    assert bench.stopped == 1 and not bench.states


def test_old_numbers_stay_until_the_new_ones_come(
    open_app: Any, library: Path, bench: StandIn, preview: Preview
) -> None:
    at = switch(open_app("merge", library, chain=CHAIN), "live")
    bench.answer(preview=preview, done=True)
    at.run()
    assert EARLIER_NOTE not in words(at) and len(at.metric) == 3
    at.slider[0].set_value(0.5).run()
    assert EARLIER_NOTE in words(at) and len(at.metric) == 3 and charts(at) == 1 and len(bench.asked) == 2
    bench.answer(preview=replace(preview, title="New"), done=True)
    at.run()
    assert EARLIER_NOTE not in words(at) and len(at.metric) == 3


def test_a_preview_is_compared_with_the_last_setting(
    open_app: Any, library: Path, bench: StandIn, preview: Preview
) -> None:
    at = switch(open_app("merge", library, chain=CHAIN), "live")
    assert LAST_LABEL not in {toggle.label for toggle in at.toggle}  # there is none yet
    at.slider[0].set_value(0.5).run()
    assert bench.asked[-1].reference == ""
    switch(at, LAST_LABEL)
    assert len(bench.asked) == 3 and bench.asked[-1].recipe == bench.asked[1].recipe
    assert bench.asked[-1].reference == bench.asked[0].recipe and bench.asked[-1].run == ""
    at.slider[0].set_value(0.6).run()
    assert bench.asked[-1].reference == bench.asked[1].recipe
    bench.answer(preview=preview, done=True)
    assert not at.run().exception and len(bench.asked) == 4 and len(at.metric) == 3
    next(toggle for toggle in at.toggle if toggle.label == LAST_LABEL).set_value(False).run()
    assert bench.asked[-1].reference == "" and bench.asked[-1].recipe == bench.asked[3].recipe


def test_the_last_of_two_quick_clicks_on_live_counts(
    open_app: Any, library: Path, bench: StandIn, preview: Preview
) -> None:
    at = open_app("merge", library, chain=CHAIN)
    key = next(toggle for toggle in at.toggle if toggle.label == "live").key
    for value in (True, False, True):
        at.toggle(key=key).set_value(value).run()  # the key stays, so that a click never reaches an old widget
        assert [toggle.value for toggle in at.toggle if toggle.label == "live"] == [value]
    press(at, "Stop")
    assert not at.toggle(key=key).value and not at.exception


@pytest.mark.parametrize(
    ("benchmark", "pretrained", "experts"), [("other", "base", "ab"), ("here", "other", "ab"), ("here", "base", "a")]
)
def test_the_last_setting_is_of_the_same_benchmark_and_models(
    monkeypatch: pytest.MonkeyPatch, bench: StandIn, benchmark: str, pretrained: str, experts: str
) -> None:
    monkeypatch.setattr(st, "session_state", {})
    first, second = (
        Recipe.build("ties", {"scaling": scaling}, (), "base", {"a": "a", "b": "b"}) for scaling in (0.2, 0.4)
    )
    other = Recipe.build("ties", {}, (), pretrained, {name: name for name in experts})
    request = PreviewRequest(recipe=second.to_yaml(), benchmark="here", store="")
    preview_panel.request_preview(replace(request, recipe=other.to_yaml(), benchmark=benchmark), "merge")
    assert preview_panel.find_last(second, request, "merge") == ""
    preview_panel.request_preview(replace(request, recipe=first.to_yaml()), "merge")
    assert preview_panel.find_last(second, request, "merge") == first.to_yaml()


def test_short_previews_are_live_by_themselves(
    open_app: Any, library: Path, bench: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_live(seconds: float) -> bool:
        monkeypatch.setattr(previews, "first_answer_seconds", lambda estimate: seconds)
        at = open_app("merge", library, chain=CHAIN)
        return bool(next(toggle for toggle in at.toggle if toggle.label == "live").value)

    open_app("merge", library)
    monkeypatch.setattr("app.widgets.panels.preview_panel.SHORT_SECONDS", 5.0)
    assert not is_live(5.0) and not bench.asked
    assert is_live(4.9) and len(bench.asked) == 1
    monkeypatch.setenv("MERGESCOPE_SHARED", "1")
    assert not is_live(4.9) and len(bench.asked) == 1


def test_the_first_answer_takes_the_merge_and_few_images(library: Path, open_app: Any) -> None:
    open_app("merge", library)  # chooses the benchmark
    tasks = page_data.benchmark().tasks
    images = sum(page_data.benchmark().count_images(task.key, split) for task in tasks for split in SPLITS)
    estimate: Any = SimpleNamespace(seconds=30.0, phases={"merging": 10.0, "evaluating": 20.0})
    expected = 10 + 20 * min(1, 16 * len(tasks) / images)
    assert previews.first_answer_seconds(estimate) == pytest.approx(expected)


def test_errors_are_shown_and_not_asked_for_again(open_app: Any, library: Path, bench: StandIn) -> None:
    at = switch(open_app("merge", library, chain=CHAIN), "live")
    bench.answer(error=f"LOT needs more than {NASTY}", done=True)
    at.run()
    assert not at.exception and "LOT needs more than" in words(at) and NASTY not in words(at)
    assert len(at.run().metric) == 0 and len(bench.asked) == 1


def read_changes(at: AppTest) -> list[float]:
    return [float(metric.value.replace("−", "-")) for metric in at.metric]


def find_changes(scores: pd.DataFrame, reference: pd.DataFrame, inside: list[str]) -> list[float]:
    """The changes of both averages and of the H-score, in points, by plain pandas; scores are of all splits."""
    averages = []
    for table in (scores, reference):
        choosing = table[table["split"] == "choosing"]
        is_inside = choosing["task"].isin(inside)
        means = [choosing[is_inside]["accuracy"].mean(), choosing[~is_inside]["accuracy"].mean()]
        averages.append([*means, 2 * means[0] * means[1] / sum(means)])
    return [round(100 * (new - old), 1) for new, old in zip(*averages, strict=True)]


def test_a_stored_merge_is_answered_without_a_process(
    open_app: Any, library: Path, bench: StandIn, preview: Preview
) -> None:
    at = open_app("merge", library, chain="ties")
    known, benchmark = runs(library), Benchmark.load(library)
    expected = find_changes(known["Ties"].scores, known["Pretrained"].scores, list(benchmark.experts))
    assert not bench.asked and read_changes(at) == expected and charts(at) == 1
    n = sum(benchmark.count_images(task.key, "choosing") for task in benchmark.tasks)
    assert "**Stored scores (not sampled)**: change against Pretrained." in words(at)
    assert f"all images of the choosing half, n = {n}, seed 0" in words(at) and NO_INTERVALS_NOTE not in words(at)
    assert "paired 95% intervals" in words(at)
    press(at, "Preview")
    bench.answer(preview=preview, done=True)
    at.run()
    assert len(bench.asked) == 1 and "Preview (sampled)" in words(at) and "Stored scores" not in words(at)


def test_stored_scores_stop_the_preview_of_an_earlier_recipe(
    open_app: Any, library: Path, bench: StandIn, preview: Preview
) -> None:
    at = press(open_app("merge", library, chain=CHAIN), "Preview")
    at.slider[0].set_value(0.2).run()
    assert "Stored scores" in words(at) and bench.stopped == 1 and not bench.states
    at.slider[0].set_value(0.9).run()
    press(at, "Preview")
    bench.answer(preview=preview, done=True)
    at.slider[0].set_value(0.2).run()
    assert "Stored scores" in words(at) and bench.stopped == 1 and bench.states  # a finished answer stays


def test_stored_scores_are_not_looked_up_for_recipes_with_data_files(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    benchmark = Benchmark.load(library)
    files = dict.fromkeys(benchmark.experts, "inputs.safetensors")
    recipe = Recipe.build("regmean", {}, [], benchmark.pretrained, benchmark.experts, layer_inputs=files)
    opened: list[Recipe] = []
    monkeypatch.setattr(previews, "open_inputs", lambda recipe, **_: opened.append(recipe))
    request = PreviewRequest(recipe=recipe.to_yaml(), benchmark="", store="")
    assert recipe.data_files.layer_inputs and previews.find_stored_change(recipe, request, None) is None and not opened


@pytest.mark.full
def test_a_point_of_a_sweep_answers_and_other_settings_are_previewed(
    open_app: Any, library: Path, bench: StandIn, tmp_path: Path
) -> None:
    benchmark, store = Benchmark.load(library), Store(tmp_path / "store", libraries=(library / "runs",))
    recipe = Recipe.build("ties", {}, [], benchmark.pretrained, benchmark.experts)
    sweep = Sweep(recipes=(recipe,), axes=(Axis("ties.density", (0.5, 0.6)),), images=0)
    run_sweep(sweep, store, benchmark)
    points = KnownPoints(plan_sweep(sweep, benchmark), store, benchmark, sweep.sample.normalize_on(benchmark))
    first, second = (point.scores for point in points.read_points().values())
    at = switch(open_app("merge", library, chain="ties:density=0.5"), "live")
    pretrained = runs(library)["Pretrained"].scores
    assert not bench.asked and read_changes(at) == find_changes(first, pretrained, list(benchmark.experts))
    at.slider[0].set_value(0.6).run()
    switch(at, LAST_LABEL)  # also stored
    assert not bench.asked and read_changes(at) == find_changes(second, first, list(benchmark.experts))
    at.slider[0].set_value(0.7).run()
    assert len(bench.asked) == 1 and EARLIER_NOTE in words(at) and len(at.metric) == 3
    at.slider[0].set_value(0.6).run()
    assert len(bench.asked) == 2 and EARLIER_NOTE in words(at)  # as the last setting is not stored


def test_several_people_see_fewer_images(
    open_app: Any, library: Path, bench: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MERGESCOPE_SHARED", "1")
    press(open_app("merge", library, chain=CHAIN), "Preview")
    assert bench.asked[0].per_task == 64


def test_every_row_of_the_data_says_what_it_is(preview: Preview) -> None:
    table = previews.preview_table(preview)
    assert set(table["kind"]) == {"preview"} and set(table["half"]) == {"choosing"}
    assert set(table["against"]) == {"Pretrained"} and set(table["seed"]) == {0}
