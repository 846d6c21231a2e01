"""The stored report on the Report page: how long it is stored, who can open it, and other reports on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable

import streamlit as st

from app import page_text
from app.reading import listed_models
from app.session import click_errors, report_keeper
from merging.study.runs.drafts import MAX_AGE_DAYS, Draft
from viz.figure_text import clean_text, plural

STORAGE_NOTE = (
    f"This server stores the report for {MAX_AGE_DAYS} days after the last change. The address of this page opens the "
    "report again in any tab; everyone with the address can read and change it. The address from **Link** under a "
    "chart does not open it."
)
UNTITLED = "Untitled report"


def draw_problem(draw_text: Callable[[str], object] = st.warning) -> None:
    """Draw the problem with the stored report, if there is one."""
    if problem := report_keeper.current_keeper().problem:
        draw_text(f":material/link_off: {page_text.safe_text(problem, 600)}")


def draw_stored_reports() -> None:
    """Draw a note on storage, buttons for another report, and earlier reports if only this machine's user sees them."""
    token = report_keeper.current_keeper().token
    if token:
        with st.container(border=True, key="report_draft", gap="xsmall"):
            st.caption(STORAGE_NOTE)
            with st.container(horizontal=True, gap="small"):
                st.button(
                    "New report", key="report_new", icon=":material/note_add:", on_click=report_keeper.start_report,
                    help="Starts an empty report. This one stays available at its address.",
                )  # fmt: skip
                st.button(
                    "Delete this report", key="report_delete", icon=":material/delete:", type="tertiary",
                    on_click=click_errors.guard_callback(report_keeper.current_keeper().delete),
                )  # fmt: skip
    if listed_models.is_local() and (
        earlier_reports := {draft.token: draft for draft in report_keeper.list_earlier_reports()}
    ):
        with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
            chosen_token = st.selectbox(
                "Earlier reports on this machine", list(earlier_reports),
                format_func=lambda token: _make_label(earlier_reports[token]), key="report_earlier", width=360,
            )  # fmt: skip
            st.button("Open", key="report_open", icon=":material/folder_open:",
                      on_click=report_keeper.open_report, args=(chosen_token,))  # fmt: skip


def _make_label(draft: Draft) -> str:
    """Title, number of views and age of a report; plain text."""
    title = clean_text(str(draft.payload.get("title") or UNTITLED), 60)
    views = draft.payload.get("views")
    age = max(0, int((time.time() - draft.changed) / 86400))
    days = "today" if age == 0 else f"{plural(age, 'day')} ago"
    return f"{title}  ·  {plural(len(views) if isinstance(views, list) else 0, 'view')}  ·  {days}"
