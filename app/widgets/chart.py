"""A chart with its question, downloads and clicks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import streamlit as st

from app import text
from app.reading import figures, names, report_sources
from app.saving import data as data_file
from app.saving import figure as figure_file
from app.saving import provenance
from app.saving.shown_chart import ShownChart
from app.session import state
from app.widgets import present, recorded, report_button
from app.widgets.page import cautions, explained
from app.widgets.view_link import link

if TYPE_CHECKING:
    import pandas as pd


class Gesture(NamedTuple):
    """How marks are chosen, and what follows.

    With the area "lasso" many can be chosen at once, which are read with ``circled``; with "box" a rectangle can be
    drawn, which is read with ``boxed``; without one a mark is clicked.
    """

    area: str
    then: Callable[[], None] | None


def ask(key: str) -> None:
    """Draw a chart's question as its heading, for charts whose controls stand between the two."""
    from viz.registry import find

    st.header(find(key).question, anchor=False)


def chart(
    key: str,
    table: pd.DataFrame,
    *,
    name: str,
    headed: bool = False,
    on_click: Callable[[], None] | Gesture | None = None,
    caption: str = "",
    description: str = "",
    heading: str = "",
    of: report_sources.Of = None,
    **options: Any,
) -> None:
    """Draw a chart under its question (unless it is ``headed`` already), with its downloads.

    ``name`` is the files' name. ``on_click`` makes marks clickable; the click is read with ``clicked``. ``caption``
    stands under the chart; in the report it follows ``description``, which is what the page says about the chart
    elsewhere. Both are Markdown. ``heading`` is the report's heading, if the question alone does not distinguish the
    chart from others. ``of`` are the runs and sweeps that it shows, if neither its table nor the address names them.
    """
    present.follow()
    presenting = state.alone()
    if presenting and not present.takes(key):
        return
    if not headed and not presenting:
        ask(key)
    table, options, back = names.shown(table, options)
    st.session_state[f"names_{key}"] = back
    words = f"{description} {caption}"
    shown = ShownChart(key, table, options, back, name, words, state.place(), cautions(), of, heading)
    recorded.note(shown)
    gesture = on_click if isinstance(on_click, Gesture) else Gesture("", on_click)
    if presenting:
        _present(shown, gesture)
        return
    _picture(shown, gesture, f"chart_{key}")
    with st.container(horizontal=True, horizontal_alignment="right", gap="xsmall"):
        data_file.buttons(shown)
        figure_file.menu(shown)
        present.button(key)
        report_button.button(shown)
        link(shown)
    if caption:
        st.caption(explained(caption, key))


def live(key: str, table: pd.DataFrame, job_id: str, *, name: str, caption: str = "", **options: Any) -> None:
    """Draw a chart of a job that has not ended, under its question, with its data; nothing where one is presented.

    The same chart of a stored run, and of other jobs, can stand on the page beside it. It changes every few seconds, so
    it goes into no report.
    """
    if state.alone():
        return
    ask(key)
    shown = ShownChart(key, *names.shown(table, options), name, caption, state.place(), of=())
    place = f"{key}_{job_id}"
    _picture(shown, Gesture("", None), f"chart_{place}")
    with st.container(horizontal=True, horizontal_alignment="right", gap="xsmall"):
        data_file.buttons(shown, of=f"_{job_id}")
    if caption:
        st.caption(explained(caption, place))


def _picture(chart: ShownChart, gesture: Gesture, place: str, stage: present.Stage | None = None) -> None:
    """Draw the figure of a chart."""
    from viz import theme

    dark, options = state.dark(), {"present": stage is not None, **chart.options}
    if stage:
        shown = stage.fitted(figures.figure(chart.key, chart.table, options, dark))
    else:
        shown = figures.shown_figure(chart.key, chart.table, options, dark)
    config = theme.config(chart.name, clicks=bool(gesture.then and not gesture.area), camera=not dark)
    extra: dict[str, Any] = {"on_select": gesture.then, "selection_mode": gesture.area or "points"}
    st.plotly_chart(
        shown, theme=None, key=place, config=config, alt=shown.layout.meta["alt"], **(extra if gesture.then else {})
    )


def _present(chart: ShownChart, gesture: Gesture) -> None:
    """Draw a chart that fills the window, with one line on where it is from."""
    with present.stage() as stage:
        if not stage.bare and not present.words(stage):
            ask(chart.key)
        _picture(chart, gesture, f"chart_{chart.key}", stage)
        st.caption(text.safe_text(provenance.line(chart), 300))


def clicked(key: str) -> dict[str, str] | None:
    """The fields of the mark last clicked on the chart ``key``; None for the empty selection after a redraw."""
    from viz.registry import find

    picked = find(key).picked(st.session_state[f"chart_{key}"].selection.points)
    return None if picked is None else names.keys(picked, st.session_state[f"names_{key}"])


def boxed(key: str) -> list[dict[str, Any]]:
    """The rectangles last drawn on the chart ``key``, each with its axes and ranges; empty after a redraw."""
    return [dict(box) for box in st.session_state[f"chart_{key}"].selection.box]


def circled(key: str) -> list[dict[str, str]]:
    """The fields of each mark in the last selection on the chart ``key``; empty after a redraw."""
    from viz.registry import find

    chart = find(key)
    points = st.session_state[f"chart_{key}"].selection.points
    back = st.session_state[f"names_{key}"]
    return [names.keys(picked, back) for point in points if (picked := chart.picked([point]))]
