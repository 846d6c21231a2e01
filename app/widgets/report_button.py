"""The button under every chart that adds it to the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import streamlit as st

from app import text
from app.reading.report_sources import Of, put, sources_of
from app.session import state
from app.session.report import report_keeper
from app.widgets.page import cautions
from merging.errors import MergingError
from viz.report.contents import ReportView

if TYPE_CHECKING:
    import pandas as pd


def button(
    key: str, table: pd.DataFrame, options: Mapping[str, Any], description: str, of: Of, heading: str = ""
) -> None:
    """A button that adds a view to the report, or removes it. ``description`` is Markdown, ``heading`` is plain."""
    draft = report_keeper.report()
    kept = draft.find(key, table, options)
    if kept:
        st.button(
            "In the report", key=f"in_report_{key}", type="tertiary", icon=":material/check:",
            help="Remove this view from the report.", on_click=draft.remove, args=(kept.number,),
        )  # fmt: skip
    else:
        st.button(
            "Add to report", key=f"in_report_{key}", type="tertiary", icon=":material/note_add:",
            help="Add this view, in its current state, to the Report page.", on_click=_add,
            args=(ReportView(key, table, dict(options), heading, "", _caption(description), state.place()), of),
        )  # fmt: skip
    if refusal := draft.refused.pop(key, ""):
        st.caption(f":material/error: {refusal}")


def _caption(description: str) -> str:
    """What the page says about a chart, with its cautions about all charts, as plain text."""
    return text.plain(f"{description} {cautions()}".strip())


def _add(view: ReportView, of: Of) -> None:
    """Callback of the button: add the view to the report, or note why it cannot be added."""
    try:
        sources = sources_of(view.table, view.options, of, view.place)
    except MergingError as error:  # a run that was deleted meanwhile
        report_keeper.report().refused[view.key] = text.safe_text(error, 600)
        return
    put(replace(view, sources=tuple(source.id for source in sources)), sources, view.key)
