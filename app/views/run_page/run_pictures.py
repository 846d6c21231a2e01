"""The small pictures of a run's page, each with a link to its own page, and the run's averages in short."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence

import streamlit as st

from app.reading import measurements, page_data, score_tables
from app.session import address, pages
from app.views.drift import by_depth
from app.widgets import chart_view, page_parts
from merging.study.runs.run import Run, have_same_models
from viz.figure_text import percent

PICTURE_PX = 236  # height of a small picture


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
