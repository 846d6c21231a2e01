"""The three lines under a chart, carried out: they find the table of the page, and its figure."""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest
from compared_runs import LWPTV, TIES
from page_harness import charts, open_page, runs
from streamlit.testing.v1 import AppTest

from app import main
from app.session.address import KEYS
from app.snapshot.headless import MAX_SECONDS, is_waiting
from app.widgets.chart_recorder import RecordedChart, record_charts
from merging.base import settings
from merging.base.errors import MergingError

PAGES = [name for section in main.SECTIONS.values() for name, *_ in section]
WITHOUT_CHARTS = {"methods", "mix", "models", "report", "lessons"}
CODE = re.compile(r'import mergescope\nview = mergescope\.view\("(.*)"\)\nview\["(\w+)"\]')


def redrawn(at: AppTest) -> dict[str, RecordedChart]:
    """The charts that a page draws, by key, until nothing is computed any more."""
    limit = time.monotonic() + MAX_SECONDS
    while True:
        with record_charts() as recorded:
            at.run()
        assert not at.exception and not at.error
        if not is_waiting(at) or time.monotonic() > limit:
            break
        time.sleep(0.3)
    return {chart[0].key: chart for chart in recorded}


def code_of(at: AppTest) -> dict[str, str]:
    """The lines under each chart of a page, by the chart's key."""
    found = [CODE.fullmatch(code.value) for code in at.get("code")]
    return {match[2]: match[0] for match in found if match}


def carry_out(lines: str) -> tuple[Any, Any]:
    """The view that the lines open, and the value of the last one."""
    *others, last = ast.parse(lines).body
    assert isinstance(last, ast.Expr)
    names: dict[str, Any] = {}
    exec(compile(ast.Module(others, []), "lines", "exec"), names)
    return names["view"], eval(compile(ast.Expression(last.value), "last line", "eval"), names)


def check(at: AppTest, drawn: Mapping[str, RecordedChart]) -> None:
    """Carry out the lines under every chart of a page."""
    lines = code_of(at)
    assert set(lines) == set(drawn) and lines
    opened: dict[str, Any] = {}
    for key, code in lines.items():
        place = code.splitlines()[1]
        if place not in opened:
            opened[place], figure = carry_out(code)
            assert figure.to_json() == opened[place][key].to_json()
        pd.testing.assert_frame_equal(opened[place].table(key), drawn[key][0].table)
        assert opened[place][key].to_json() == drawn[key][0].draw().to_json(), key


@pytest.mark.full
def test_the_lines_draw_the_chart_at_the_page_s_settings(mergescope: ModuleType, notebook_place: Path) -> None:
    written = {"ratio": "0.4", "tensor_order": "kind of layer"}  # as the browser writes them after a slider is moved
    at = open_page("masks", {"run": runs(notebook_place)[LWPTV].id, **written})
    drawn = redrawn(at)
    assert "ratio=0.4&tensor_order=kind+of+layer" in code_of(at)["saliency_matrix"]
    check(at, drawn)


@pytest.mark.full
def test_the_lines_draw_the_two_runs_that_are_compared(mergescope: ModuleType, notebook_place: Path) -> None:
    a, b = (runs(notebook_place)[title].id for title in (TIES, LWPTV))
    at = open_page("compare", {"run": a, "run_b": b, "compare_view": "images"})
    check(at, redrawn(at))


@pytest.mark.full
def test_the_lines_and_the_link_keep_every_chosen_class(mergescope: ModuleType, open_app: Any) -> None:
    query = {"map": "t-SNE alone", "data_set": "UCI digits", "classes": ["four", "six"]}
    at = open_app("features", settings.BUNDLED_FOLDER, **query)
    at.session_state["link_feature_map"] = True  # opens the menu
    drawn = redrawn(at)
    code = code_of(at)["feature_map"]
    assert "classes=four&classes=six" in code and set(drawn["feature_map"][0].table["truth"]) == {"four", "six"}
    assert any(text.value.startswith("http") and "classes=four&classes=six" in text.value for text in at.get("code"))
    table = carry_out(code)[0].table("feature_map")
    pd.testing.assert_frame_equal(table, drawn["feature_map"][0].table)
    run = mergescope.run(drawn["feature_map"][1][0].id)
    with pytest.raises(MergingError, match="classes cannot be four, eleven; it can be: zero, one, two"):
        run.plot("feature_map", **query | {"classes": ("four", "eleven")})


def test_the_lines_leave_the_lesson_out(mergescope: ModuleType, notebook_place: Path) -> None:
    at = open_page("masks", {"run": runs(notebook_place)[LWPTV].id, "lesson": "none", "step": "1"})
    assert "lesson" not in str(code_of(at)) and code_of(at)


def test_home_s_map_has_no_lines_because_no_address_has_its_sliders(notebook_place: Path) -> None:
    at = open_page("masks", {})
    at.query_params.clear()
    at.switch_page("screens/home.py").run()
    assert not code_of(at)


@pytest.mark.full
@pytest.mark.parametrize("page", [page for page in PAGES if page not in {*WITHOUT_CHARTS, "home"}])
def test_the_lines_of_every_view_draw_its_charts(
    mergescope: ModuleType, open_app: Any, page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.widgets.panels.preview_panel.SHORT_SECONDS", 1e9)  # Merge previews at once
    control = f"{page}_view" if f"{page}_view" in KEYS else ""
    at = open_app(page, settings.BUNDLED_FOLDER)
    for view in at.button_group(key=control).options if control else [""]:
        at = open_app(page, settings.BUNDLED_FOLDER, **({control: view} if view else {}))
        check(at, redrawn(at))


@pytest.mark.full
@pytest.mark.parametrize("page", sorted(WITHOUT_CHARTS))
def test_other_pages_have_no_charts(open_app: Any, page: str) -> None:
    assert not charts(open_app(page, settings.BUNDLED_FOLDER))
