"""What the tests of Models & runs share: its table, its choice of runs, a merge from start to end."""

from __future__ import annotations

from typing import Any

from page_harness import finish, press
from streamlit.testing.v1 import AppTest

from app.reading import data


def table(at: AppTest) -> Any:
    return at.dataframe[0].value


def tick(at: AppTest, runs: list[str]) -> AppTest:
    """Choose runs."""
    return at.multiselect(key="chosen_runs").set_value(runs).run()


def merged(at: AppTest, chain: str = "ties") -> str:
    """Press Run and wait; gives the run's id."""
    press(at, "Run")
    at = finish(at)
    assert not at.error and not at.exception
    return next(job.id for job in data.runner().jobs() if job.kind == "merge")
