"""What a run's own page shows of it: computed sentences, the map of the network, and four small pictures."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import streamlit as st

from app import page_text
from app.reading import measurements, page_data, score_tables
from app.session import address, benchmark_choice, click_errors, pages
from app.views.drift import by_depth
from app.widgets import chart_view, page_parts
from app.widgets.jobs import missing_box
from merging.base.text import duration_text
from merging.study.analysis.measurement_registry import find_measurement
from merging.study.run_story import RunEvidence, RunFact, tell_story
from merging.study.runs.run import Run, have_same_models
from viz.figure_text import percent

PICTURE_PX = 236  # height of a small picture
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
    keys = (measurements.DRIFT, measurements.RESET_TO_PRETRAINED, measurements.EXPERT_PAIRS)
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


def describe_result(run: Run, stored: Sequence[Run]) -> str:
    """The averages of a run in lines, for the end of the streams on the map."""
    summary = page_data.summary(run, stored)
    if summary is None:
        return "merged"
    return (
        f"merged\nin {percent(summary.in_domain)}\nout {percent(summary.out_of_domain)}\nH {percent(summary.h_score)}"
    )


def draw_pictures(run: Run, runs: Sequence[Run], stored: Sequence[Run]) -> None:
    """Small pictures, each with a link to its page: the run among others, its tasks, and its drift."""
    of_run = {address.RUNS: run.id}
    with st.grid(3, min_column_width=290, gap="medium"):
        if run.has_scores:
            peers = [one for one in runs if one.id != run.id and one.has_scores and have_same_models(one, run)]
            averages = score_tables.averages_table([run, *peers], stored)
            with _draw_door("See its scores", pages.SCORES, "monitoring", of_run):
                chart_view.draw_small_chart("run_plane", averages, PICTURE_PX, selected=run.id)
            accuracies = score_tables.accuracies_table([run], stored)
            with _draw_door("See task by task", pages.SCORES, "bar_chart", of_run):
                chart_view.draw_small_chart("task_accuracy", accuracies, PICTURE_PX, runs=[run.id])
        if drift := measurements.find_measurement(measurements.DRIFT, run.id):
            table = measurements.drift_by_depth([(run, drift)], next(iter(by_depth.TOKENS.values())))
            distance = next(iter(by_depth.DISTANCES.values()))
            with _draw_door("See its drift", pages.DRIFT, "moving", of_run):
                chart_view.draw_small_chart(
                    "drift_depth", table, PICTURE_PX, value=distance, runs=[run.id], band=run.id
                )


@contextlib.contextmanager
def _draw_door(label: str, path: str, icon: str, query: Mapping[str, str]) -> Iterator[None]:
    """A box with a picture, and under it the link to the page that shows it in full."""
    with st.container(border=True, gap="xsmall"):
        yield
        page_parts.draw_page_link(path, label, icon, **query)
