"""A chart with its question, downloads and clicks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import streamlit as st

from app import text
from app.reading import figures, names, report_sources
from app.saving import data as data_file
from app.saving import figure as figure_file
from app.saving import provenance
from app.session import state
from app.widgets import present, recorded, report_button
from app.widgets.elsewhere.link import link
from app.widgets.page import explained

if TYPE_CHECKING:
    import pandas as pd


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
    on_click: Callable[[], None] | None = None,
    area: str = "",
    caption: str = "",
    description: str = "",
    heading: str = "",
    of: report_sources.Of = None,
    **options: Any,
) -> None:
    """Draw a chart under its question (unless it is ``headed`` already), with its downloads.

    ``name`` is the files' name. ``on_click`` makes marks clickable; the click is read with ``clicked``. With the
    ``area`` "lasso" many marks can be chosen at once, which are read with ``circled``; with "box" a rectangle can be
    drawn, which is read with ``boxed``. ``caption`` stands under the chart; in the report it follows ``description``,
    which is what the page says about the chart elsewhere. Both are Markdown. ``heading`` is the report's heading, if
    the question alone does not distinguish the chart from others. ``of`` are the runs and sweeps that it shows, if
    neither its table nor the address names them.
    """
    from viz import theme

    present.follow()
    presenting = state.alone()
    if presenting and not present.takes(key):
        return
    if not headed and not presenting:
        ask(key)
    table, options, st.session_state[f"names_{key}"] = names.shown(table, options)
    recorded.note(key, table, options, f"{description} {caption}", of, heading)
    drawn = {"present": presenting, **options}
    figure = figures.figure(key, table, drawn)  # what is saved has a light ground
    extra: dict[str, Any] = {"on_select": on_click, "selection_mode": area or "points"} if on_click else {}
    config = theme.config(name, clicks=on_click is not None and not area, camera=not state.dark())
    with present.stage() if presenting else contextlib.nullcontext() as stage:
        if stage:
            if not stage.bare and not present.words(stage):
                ask(key)
            shown = stage.fitted(figures.figure(key, table, drawn, state.dark()))
        else:
            shown = figures.shown_figure(key, table, drawn, state.dark())
        st.plotly_chart(shown, theme=None, key=f"chart_{key}", config=config, alt=figure.layout.meta["alt"], **extra)
        if stage:
            st.caption(text.safe_text(provenance.line(table, options, of, text.plain(f"{description} {caption}")), 300))
    if presenting:
        return
    with st.container(horizontal=True, horizontal_alignment="right", gap="xsmall"):
        words = text.plain(f"{description} {caption}".strip())
        back = st.session_state[f"names_{key}"]
        source = provenance.line(table, options, of, words)
        data_file.buttons(key, figure, table, back, name=name, source=source)
        figure_file.menu(key, figure, name=name, caption=words, source=source)
        present.button(key)
        report_button.button(key, table, options, f"{description} {caption}".strip(), of, heading)
        link(key, figure_file.picture(key, figure, name, [source]))
    if caption:
        st.caption(explained(caption, key))


def live(key: str, table: pd.DataFrame, job_id: str, *, name: str, caption: str = "", **options: Any) -> None:
    """Draw a chart of a job that has not ended, under its question, with its data; nothing where one is presented.

    The same chart of a stored run, and of other jobs, can stand on the page beside it. It changes every few seconds, so
    it goes into no report.
    """
    from viz import theme

    if state.alone():
        return
    ask(key)
    table, options, back = names.shown(table, options)
    drawn = {"present": False, **options}
    figure = figures.figure(key, table, drawn)
    shown = figures.shown_figure(key, table, drawn, state.dark())
    place = f"{key}_{job_id}"
    config = theme.config(name, camera=not state.dark())
    st.plotly_chart(shown, theme=None, key=f"chart_{place}", config=config, alt=figure.layout.meta["alt"])
    with st.container(horizontal=True, horizontal_alignment="right", gap="xsmall"):
        source = provenance.line(table, options, (), text.plain(caption))
        data_file.buttons(key, figure, table, back, name=name, source=source, of=f"_{job_id}")
    if caption:
        st.caption(explained(caption, place))


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
