"""What the tests of Models & runs share: its table, its choice of runs, a merge from start to end."""

from __future__ import annotations

import json
from typing import Any

from page_harness import press, run_until_idle
from streamlit.proto.WidgetStates_pb2 import WidgetStates
from streamlit.testing.v1 import AppTest

from app.reading import page_data


def table(at: AppTest) -> Any:
    return at.dataframe[0].value


def open_run(at: AppTest, title: str) -> AppTest:
    """The page after a click on the name of a run in the table."""
    (widget,) = at.dataframe[0].proto.button_click_widgets.values()
    unclicked = at._tree.get_widget_states

    def clicked() -> WidgetStates:
        states = unclicked()
        state = states.widgets.add()
        state.id, state.string_trigger_value.data = widget, json.dumps({"row": 0, "label": title})
        return states

    at._tree.get_widget_states = clicked  # type: ignore[method-assign]
    return at.run()


def choose_runs(at: AppTest, runs: list[str]) -> AppTest:
    """Choose runs."""
    return at.multiselect(key="chosen_runs").set_value(runs).run()


def run_merge(at: AppTest, chain: str = "ties") -> str:
    """Press Run and wait; gives the run's id."""
    press(at, "Run")
    at = run_until_idle(at)
    assert not at.error and not at.exception
    return next(job.id for job in page_data.job_queue().list_jobs() if job.kind == "merge")
