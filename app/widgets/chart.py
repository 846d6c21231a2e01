"""A chart with its question, downloads and clicks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import streamlit as st

from app.reading import data, report_sources
from app.session import state
from app.widgets.page import link
from merging.files import tables

if TYPE_CHECKING:
    import pandas as pd

FORMATS = ("SVG", "PNG")


def ask(key: str) -> None:
    """The question that a chart answers, as its heading; for charts whose controls stand under it."""
    from viz.registry import find

    st.subheader(find(key).question, anchor=False)


def chart(
    key: str,
    table: pd.DataFrame,
    *,
    name: str,
    asked: bool = False,
    on_click: Callable[[], None] | None = None,
    lasso: bool = False,
    caption: str = "",
    said: str = "",
    heading: str = "",
    of: report_sources.Of = None,
    **options: Any,
) -> None:
    """A chart under the question that it answers (unless ``asked`` already), with what can be taken away.

    ``name`` is what files are called. ``on_click`` makes marks clickable; the click is read with ``clicked``. With
    ``lasso`` many marks can be chosen at once; they are read with ``circled``. ``caption`` is written under it; the
    report says it, too, after what the page has ``said`` of it elsewhere. Both are Markdown. ``heading`` is the
    report's where the question alone would not tell it from others. ``of`` are the runs and
    sweeps that it is of, where neither its table nor the address says so.
    """
    from viz import theme

    if not asked:
        ask(key)
    figure = data.figure(key, table, {"present": state.present(), **options})
    modes = "lasso" if lasso else "points"  # plotly drops clicks where a lasso can be drawn
    extra: dict[str, Any] = {"on_select": on_click, "selection_mode": modes} if on_click else {}
    form = str(st.session_state.get(f"format_{key}") or FORMATS[0])
    config = theme.config(name, form.lower(), clicks=on_click is not None and not lasso)
    st.plotly_chart(figure, theme=None, key=f"chart_{key}", config=config, alt=figure.layout.meta["alt"], **extra)
    with st.container(horizontal=True, horizontal_alignment="right"):
        st.download_button(
            "Data (CSV)",
            lambda: tables.csv_bytes(table),
            f"{name}.csv",
            "text/csv",
            key=f"csv_{key}",
            on_click="ignore",
            type="tertiary",
            icon=":material/table:",
            help="The table of this chart.",
        )
        with st.popover("Figure", icon=":material/photo_camera:", type="tertiary", help="Save the figure"):
            st.segmented_control("Save as", FORMATS, default=FORMATS[0], key=f"format_{key}", required=True)
            st.caption("Point at the chart and click the camera in its upper right corner.")
        report_sources.button(key, table, options, f"{said} {caption}".strip(), of, heading)
        link()
    if caption:
        st.caption(caption)


def clicked(key: str) -> dict[str, str] | None:
    """What the last click on the chart ``key`` chose, by field; None for the empty selection after a redraw."""
    from viz.registry import find

    return find(key).picked(st.session_state[f"chart_{key}"].selection.points)


def circled(key: str) -> list[dict[str, str]]:
    """What the last selection on the chart ``key`` chose, by field, mark by mark; empty after a redraw."""
    from viz.registry import find

    chart = find(key)
    points = st.session_state[f"chart_{key}"].selection.points
    return [picked for point in points if (picked := chart.picked([point]))]
