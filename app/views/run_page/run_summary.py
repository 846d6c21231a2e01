"""The sentences on a run's page, computed from what is stored, with links and an offer to measure what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

import streamlit as st

from app import page_text
from app.reading import measurements, page_data
from app.session import address, benchmark_choice, click_errors
from app.widgets.jobs import missing_box
from merging.base.text import duration_text
from merging.study.analysis.measurement_registry import find_measurement
from merging.study.run_story import RunEvidence, RunFact, tell_story
from merging.study.runs.run import Run

TITLES = {  # path of a page -> title of links to it
    "masks": "Masks", "scores": "Scores", "drift": "Drift", "learning": "Learning", "run": "Map",
    "conflicts": "Conflicts",
}  # fmt: skip
VIEW_KEYS = {
    "scores": address.SCORES_VIEW, "drift": address.DRIFT_VIEW, "learning": address.LEARNING_VIEW,
    "run": address.NETWORK_QUANTITY, "conflicts": address.CONFLICTS_VIEW,
}  # fmt: skip


@st.cache_data(max_entries=page_data.MAX_CACHED, show_spinner="Reading what this run did …")
def _tell_story_cached(cache_key: tuple[Any, ...], _run: Run, _stored: Sequence[Run]) -> list[RunFact]:
    titles = dict(page_data.data_set_titles())
    return tell_story(RunEvidence(_run, _stored, page_data.store(), page_data.benchmark(), titles))


def read_story(run: Run, stored: Sequence[Run]) -> list[RunFact]:
    """The facts about a run; computed again when a run or a measurement is added."""
    keys = (
        measurements.DRIFT, measurements.RESET_TO_PRETRAINED, measurements.RESET_FIRST_ORDER,
        measurements.EXPERT_PAIRS,
    )  # fmt: skip
    found = tuple(str(one.path) if (one := measurements.find_measurement(key, run.id)) else "" for key in keys)
    return _tell_story_cached((run.id, len(stored), page_data.current_digest(), *found), run, stored)


def draw_story(facts: Sequence[RunFact], run: Run) -> None:
    """The sentences, each with a link to the view that shows the same."""
    lines = [
        f"- {page_text.safe_text(fact.sentence, 600)} [{TITLES[fact.page]}]({_link_fact(fact, run)})"
        for fact in facts
        if fact.sentence
    ]
    with st.container(key="story"):
        st.markdown("\n".join(lines))


def _link_fact(fact: RunFact, run: Run) -> str:
    """The address of the view that shows a fact."""
    from viz.figures.network.quantities import QUANTITIES

    query = {address.RUNS if fact.page in ("scores", "drift") else address.RUN: run.id, **benchmark_choice.link_query()}
    view = QUANTITIES[fact.view].title if fact.page == "run" else fact.view
    query |= {VIEW_KEYS[fact.page]: view} if view and fact.page in VIEW_KEYS else {}
    query |= {address.TENSOR: fact.tensor} if fact.tensor else {}
    query |= {address.EXPERT: fact.task or fact.expert} if fact.task or fact.expert else {}
    return f"{fact.page}?{urlencode(query)}"


def offer_measurements(facts: Sequence[RunFact], run: Run, joint_subject: str) -> None:
    """One box for all measurements that the page lacks, with one button; draws nothing if none is missing.

    ``joint_subject`` is the subject of the joint map of features to measure, empty if the page needs none.
    """
    subjects = {fact.measurement: run.id for fact in facts if fact.measurement}
    subjects |= {measurements.JOINT_MAP: joint_subject} if joint_subject else {}
    jobs = reversed(page_data.job_queue().list_benchmark_jobs())
    newest = {job.kind: job for job in jobs if job.subject == subjects.get(job.kind)}
    items = [(key, newest.get(key)) for key in subjects]

    def draw_running(live: list[str], jobs: list[Any]) -> None:
        st.markdown(f":material/hourglass_top: {_quote_titles(live)} is running. {missing_box.GO_ON_NOTE}")

    def draw_offer(missing: list[str]) -> None:
        seconds = sum(find_measurement(key).seconds for key in missing)
        st.caption(f"More can be shown after measuring {_quote_titles(missing)}: about {duration_text(seconds)}.")
        wanted = [(key, subjects[key]) for key in missing]
        st.button("Measure all", key="measure_story", on_click=_start_measuring, args=(wanted,))

    if items:
        missing_box.draw_box("story", items, draw_running, draw_offer)


def _quote_titles(keys: Sequence[str]) -> str:
    return page_text.join_words([f"“{find_measurement(key).title}”" for key in keys])


@click_errors.guard_callback
def _start_measuring(wanted: Sequence[tuple[str, str]]) -> None:
    """Callback: start these measurements, each of its subject."""
    for key, subject in wanted:
        page_data.job_queue().measure(key, subject)
