"""What the tests of Models & runs share: its table, its choice of runs, a merge from start to end."""

from __future__ import annotations

from typing import Any

from page_harness import press, run_until_idle
from streamlit.testing.v1 import AppTest

from app.reading import page_data


def table(at: AppTest) -> Any:
    return at.dataframe[0].value


def choose_runs(at: AppTest, runs: list[str]) -> AppTest:
    """Choose runs."""
    return at.multiselect(key="chosen_runs").set_value(runs).run()


def run_merge(at: AppTest, chain: str = "ties") -> str:
    """Press Run and wait; gives the run's id."""
    press(at, "Run")
    at = run_until_idle(at)
    assert not at.error and not at.exception
    return next(job.id for job in page_data.job_queue().list_jobs() if job.kind == "merge")
