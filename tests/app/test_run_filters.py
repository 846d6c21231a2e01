"""The list of runs: its filters, and the small picture of each row."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from models_page import choose_runs, table
from page_harness import words

from app.views.runs import run_filters, run_rows
from merging.base import settings
from merging.images.benchmarks.metrics import Summary

AT_HALF = Summary(*[0.5] * 8, 8, 8, 7, 100, 100)


def circles(picture: str | None) -> list[tuple[float, ...]]:
    assert picture is not None
    text = base64.b64decode(picture.removeprefix("data:image/svg+xml;base64,")).decode()
    return [tuple(map(float, one)) for one in re.findall(r'cx="([\d.]+)" cy="([\d.]+)" r="([\d.]+)"', text)]


def test_the_picture_marks_accuracy_to_the_right_and_up() -> None:
    low, high = replace(AT_HALF, in_domain=0.0, out_of_domain=0.0), replace(AT_HALF, in_domain=1.0, out_of_domain=1.0)
    ring, mark = circles(run_rows.draw_plane(high, low))
    assert mark[0] > ring[0] + 30 and mark[1] < ring[1] - 20
    for x, y, radius in (ring, mark):
        assert radius <= x <= run_rows.PICTURE_WIDTH - radius and radius <= y <= run_rows.PICTURE_HEIGHT - radius
    assert len(circles(run_rows.draw_plane(AT_HALF, None))) == 1
    assert run_rows.draw_plane(None, AT_HALF) is None
    assert run_rows.draw_plane(replace(AT_HALF, out_of_domain=float("nan")), AT_HALF) is None


@pytest.mark.full
def test_methods_experts_and_protocols_filter_the_list(open_app: Any) -> None:
    at = open_app("models", settings.BUNDLED_FOLDER, models_view="runs")
    every = table(at)
    assert every["title"].is_unique and every["plane"].str.startswith("data:image/svg+xml;base64,").all()
    assert {box.key for box in at.multiselect} == {"chosen_runs", "listed_methods", "listed_protocols"}  # not the rest
    at.multiselect(key="listed_methods").set_value(["LwPTV", "TIES"]).run()
    pruned = table(at)
    assert (
        0 < len(pruned) < 10
        and pruned["chain"].str.contains("LwPTV").all()
        and pruned["chain"].str.contains("TIES").all()
    )
    assert f"{len(pruned)} of {len(every)} runs." in words(at)
    at.multiselect(key="listed_methods").set_value([])
    at.multiselect(key="listed_protocols").set_value([run_filters.BY_TASK]).run()
    assert "EMR-Merging (one model per task) ‡" in set(table(at)["title"])
    assert set(table(at)["title"]) < set(every["title"])


@pytest.mark.full
def test_a_chosen_run_that_a_filter_hides_stays_chosen(open_app: Any) -> None:
    at = open_app("models", settings.BUNDLED_FOLDER, models_view="runs")
    chosen = table(at)["id"][0]
    choose_runs(at, [chosen])
    at.text_input(key="listed_words").set_value("EMR").run()
    assert not at.exception and chosen not in set(table(at)["id"])
    assert at.multiselect(key="chosen_runs").value == [chosen]
    at.text_input(key="listed_words").set_value("no such run").run()
    assert not at.exception and not at.get("arrow_data_frame") and "0 of " in words(at)


@pytest.mark.parametrize(
    ("on_test", "by_task", "says"),
    [(False, False, [run_filters.PLAIN]), (True, False, [run_filters.ON_TEST]),
     (True, True, [run_filters.ON_TEST, run_filters.BY_TASK])],
)  # fmt: skip
def test_a_run_has_its_marks_as_protocols(on_test: bool, by_task: bool, says: list[str]) -> None:
    assert run_filters.list_protocols(SimpleNamespace(adapts_on_test=on_test, needs_task=by_task)) == says
