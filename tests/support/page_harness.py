"""What the tests of pages share: a page's text, its charts, its buttons, and clicks on marks."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import streamlit as st
from streamlit.proto.WidgetStates_pb2 import WidgetStates
from streamlit.testing.v1 import AppTest

from app import permissions, process_values
from app.reading import page_data
from app.settings_file import apply_settings
from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.presets import find_preset
from merging.study.runs.execute import execute
from merging.study.runs.run import Run
from merging.study.runs.run_store import Store

MAIN = Path(__file__).resolve().parents[2] / "app" / "main.py"
EXPLAINED = re.compile(r"\[([^\]]*)\]\(methods\?word=[^)]*\)")
SLOW = 60  # seconds that a page may take on a busy machine
apply_settings()


forgotten = [0]  # how often everything was forgotten


def forget() -> None:
    """Empty all that the app keeps between pages and sessions."""
    st.cache_data.clear()
    st.cache_resource.clear()
    process_values.forget_values()
    forgotten[0] += 1


def open_page(page: str, query: Mapping[str, str]) -> AppTest:
    """A new session on a page, as by a link."""
    at = AppTest.from_file(str(MAIN), default_timeout=SLOW)
    if page != "home":
        at.switch_page(f"screens/{page}.py")
    for key, value in query.items():
        at.query_params[key] = value
    return at.run()


def words(at: AppTest) -> str:
    """All text on the page, without the links that explain words."""
    kinds = ("title", "header", "subheader", "markdown", "caption", "text", "info", "warning", "error", "success")
    return EXPLAINED.sub(r"\1", "\n".join(str(element.value) for kind in kinds for element in at.get(kind)))


def charts(at: AppTest) -> int:
    """The number of charts of the view."""
    return len(chart_keys(at))


def chart_keys(at: AppTest) -> list[str]:
    """The charts of the view, without the map of the network above it, which has its own tests."""
    keys = (chart.proto.id.rpartition("chart_")[2] for chart in at.get("plotly_chart"))
    return [key for key in keys if key != "network_map"]


def chart_specs(at: AppTest) -> list[str]:
    """The charts of ``chart_keys`` as JSON."""
    return [chart.proto.spec for chart in at.get("plotly_chart") if not chart.proto.id.endswith("chart_network_map")]


def press(at: AppTest, label: str) -> AppTest:
    """Click the button of that label, not that of the map above the view."""
    return find_buttons(at, label)[0].click().run()


def find_buttons(at: AppTest, *labels: str) -> list[Any]:
    """The buttons with one of these labels, without those of the map of the network above the view."""
    return [button for button in at.button if button.label in labels and button.key != "in_report_network_map"]


def run_until_idle(at: AppTest) -> AppTest:
    """Run the page until nothing is live any more."""
    limit = time.monotonic() + SLOW
    while any(job.is_live for job in page_data.job_queue().list_jobs()) and time.monotonic() < limit:
        time.sleep(0.2)
    return at.run()


def runs(folder: Path) -> dict[str, Run]:
    """The stored runs of a library by title."""
    return {run.title: run for run in Store(libraries=(folder / "runs",)).list_runs()}


def labels(at: AppTest, kind: str) -> list[str]:
    return [element.label for element in at.get(kind)]


def click(at: AppTest, key: str, *fields: str) -> AppTest:
    """Run the page as after a click on a mark of a chart; without fields, as after the selection was emptied."""
    return select(at, key, [fields] if fields else [])


def select(at: AppTest, key: str, marks: Sequence[Sequence[str]]) -> AppTest:
    """Run the page as after a selection of marks, whose customdata the front end sends as {"0": ..., ...}."""
    chart = next(chart for chart in at.get("plotly_chart") if chart.proto.id.endswith(f"chart_{key}"))
    points = [{"customdata": {str(place): field for place, field in enumerate(fields)}} for fields in marks]
    held = at._tree.get_widget_states

    def selected() -> WidgetStates:
        states = held()
        state = states.widgets.add()
        state.id, state.string_value = chart.proto.id, json.dumps({"selection": {"points": points}})
        return states

    at._tree.get_widget_states = selected  # type: ignore[method-assign]
    return at.run()


def serve_several(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """Make the app think that several people work on it, because of a switch or of the server's address."""
    if how == "switch":
        monkeypatch.setenv("MERGESCOPE_SHARED", "1")
    else:
        monkeypatch.setattr(
            permissions, "is_this_machine", lambda _host: False
        )  # the server listens on another address


def picker(at: AppTest, kind: str) -> Any:
    """The picker of the selection of one kind: its key is a new one after a click on a chart."""
    return next(box for box in at.selectbox if re.fullmatch(rf"{kind}(_\d+)?", box.key or ""))


def go(at: Any, page: str, **query: str) -> Any:
    """The page after a click on its link, which carries the query and nothing else."""
    at.query_params.clear()
    for key, value in query.items():
        at.query_params[key] = value
    at.switch_page(f"screens/{page}.py").run()
    assert not at.exception
    return at


def named(at: Any, key: str) -> list[str]:
    """The ids that the address has under a key."""
    value = at.query_params.get(key, "")
    return str(value if isinstance(value, str) else value[0]).split(",")


def shown(at: Any, key: str) -> list[str]:
    """The ids of the runs that a page shows; its address leaves out runs that were not chosen."""
    if key != "runs":
        return [str(at.selectbox(key="picker").value)]
    return named(at, key) if key in at.query_params else str(at.session_state["_implied"].get(key, "")).split(",")


def own(folder: Path, root: Path, key: str, **changes: Any) -> Run:
    """A run of the user's own: of a preset, with changes to its recipe."""
    benchmark = Benchmark.load(folder)
    recipe = replace(find_preset(key).recipe(benchmark.pretrained, benchmark.experts), **changes)
    return execute(recipe, Store(root, libraries=()), benchmark=benchmark, keep_model=False)


class AddressBar(dict[str, str]):
    """The query of an address."""

    def to_dict(self) -> dict[str, str]:
        return dict(self)

    def get_all(self, key: str) -> list[str]:
        return [self[key]]
