"""The button under every chart that adds it to the report."""

from __future__ import annotations

import streamlit as st

from app import page_text
from app.reading.report_sources import add_view, list_sources
from app.saving.shown_chart import ShownChart
from app.session import report_keeper
from merging.base.errors import MergingError


def draw_report_button(chart: ShownChart) -> None:
    """A button that adds a chart to the report, or removes it."""
    draft, key = report_keeper.current_report(), chart.key
    stored = draft.find(key, chart.table, chart.options)
    if stored:
        st.button(
            "In the report", key=f"in_report_{key}", type="tertiary", icon=":material/check:",
            help="Remove this view from the report.", on_click=draft.remove, args=(stored.number,),
        )  # fmt: skip
    else:
        st.button(
            "Add to report", key=f"in_report_{key}", type="tertiary", icon=":material/note_add:",
            help="Add this view, in its current state, to the Report page.", on_click=_add, args=(chart,),
        )  # fmt: skip
    if refusal := draft.refused.pop(key, ""):
        st.caption(f":material/error: {refusal}")


def _add(chart: ShownChart) -> None:
    """Callback of the button: add the chart to the report, or note why it cannot be added."""
    try:
        sources = list_sources(chart.table, chart.options, chart.sources, chart.view_address)
    except MergingError as error:  # a run that was deleted meanwhile
        report_keeper.current_report().refused[chart.key] = page_text.safe_text(error, 600)
        return
    add_view(chart.make_view(sources), sources, chart.key)
