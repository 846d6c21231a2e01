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
    "masks": "Masks", "scores": "Scores", "drift": "Drift", "learning": "Learning", "compare": "Compare",
    "conflicts": "Conflicts",
}  # fmt: skip
VIEW_KEYS = {
    "scores": address.SCORES_VIEW, "drift": address.DRIFT_VIEW, "learning": address.LEARNING_VIEW,
    "compare": address.COMPARE_VIEW, "conflicts": address.CONFLICTS_VIEW,
}  # fmt: skip


@st.cache_data(max_entries=page_data.MAX_CACHED, show_spinner="Reading what this run did …")
def _tell_story_cached(cache_key: tuple[Any, ...], _run: Run, _stored: Sequence[Run]) -> list[RunFact]:
    titles = dict(page_data.data_set_titles())
    return tell_story(RunEvidence(_run, _stored, page_data.store(), page_data.benchmark(), titles))


def read_story(run: Run, stored: Sequence[Run]) -> list[RunFact]:
    """The facts about a run; computed again when a run or a measurement is added."""
    keys = (
        measurements.DRIFT, measurements.RESET_TO_PRETRAINED, measurements.RESET_FIRST_ORDER,
        measurements.EXPERT_PAIRS, measurements.PREDICTIONS,
    )  # fmt: skip
    found = tuple(str(one.path) if (one := measurements.find_measurement(key, run.id)) else "" for key in keys)
    return _tell_story_cached((run.id, len(stored), page_data.current_digest(), *found), run, stored)


def draw_story(facts: Sequence[RunFact], run: Run, stored: Sequence[Run]) -> None:
    """The sentences, each with a link to the view that shows the same."""
    lines = [
        f"- {page_text.safe_text(fact.sentence, 600)} [{TITLES[fact.page]}]({_link_fact(fact, run, stored)})"
        for fact in facts
        if fact.sentence
    ]
    with st.container(key="story"):
        st.markdown("\n".join(lines))


def _link_fact(fact: RunFact, run: Run, stored: Sequence[Run]) -> str:
    """The address of the view that shows a fact."""
    query = {address.RUNS if fact.page in ("scores", "drift") else address.RUN: run.id, **benchmark_choice.link_query()}
    pretrained = page_data.references(run.benchmark, stored).get("pretrained")
    if fact.page == "compare" and pretrained is not None:
        query[address.RUN_B] = pretrained.id
    query |= {VIEW_KEYS[fact.page]: fact.view} if fact.view and fact.page in VIEW_KEYS else {}
    query |= {address.TENSOR: fact.tensor} if fact.tensor else {}
    query |= {address.EXPERT: fact.task or fact.expert} if fact.task or fact.expert else {}
    return f"{fact.page}?{urlencode(query)}"


def offer_measurements(facts: Sequence[RunFact], run: Run) -> None:
    """One box for all measurements that the sentences lack, with one button; draws nothing if none is missing."""
    keys = list(dict.fromkeys(fact.measurement for fact in facts if fact.measurement))
    newest = {job.kind: job for job in reversed(page_data.job_queue().list_benchmark_jobs()) if job.subject == run.id}
    items = [(key, newest.get(key)) for key in keys]

    def draw_running(live: list[str], jobs: list[Any]) -> None:
        titles = page_text.join_words([f"“{find_measurement(key).title}”" for key in live])
        st.markdown(f":material/hourglass_top: {titles} is running. {missing_box.GO_ON_NOTE}")

    def draw_offer(missing: list[str]) -> None:
        seconds = sum(find_measurement(key).seconds for key in missing)
        titles = page_text.join_words([f"“{find_measurement(key).title}”" for key in missing])
        st.markdown(f"More can be said after measuring {titles}: about {duration_text(seconds)}.")
        st.button("Measure all", key="measure_story", on_click=_start_measuring, args=(missing, run.id))

    if items:
        missing_box.draw_box("story", items, draw_running, draw_offer)


@click_errors.guard_callback
def _start_measuring(keys: Sequence[str], run_id: str) -> None:
    """Callback: start these measurements of the run."""
    for key in keys:
        page_data.job_queue().measure(key, run_id)
