"""Report: views chosen on other pages, in order and with notes, as one HTML file."""

from __future__ import annotations

import streamlit as st

from app import page_text
from app.reading import page_data, report_sources
from app.session import pages, report_keeper
from app.session.report_draft import MAX_VIEWS
from app.views.report import first_views, stored_reports, view_cards
from app.widgets import page_parts
from merging.base.text import size_text
from viz.figure_text import plural
from viz.report import render
from viz.report.report_contents import ReportError

FILE_NAME = "mergescope_report.html"
EMPTY_NOTE = (
    "The report is empty. The button **Add to report** under every chart adds the chart in its current state: its "
    "runs, settings and table. Charts are on these pages:"
)
CHART_PAGES = (
    (pages.SCORES, "Scores", "monitoring"),
    (pages.SWEEPS, "Sweeps", "tune"),
    (pages.COMPARE, "Compare", "compare"),
    (pages.MASKS, "Masks", "grid_on"),
    (pages.CONFLICTS, "Conflicts", "call_split"),
    (pages.PARTNERS, "Partners", "diversity_3"),
    (pages.DRIFT, "Drift", "moving"),
    (pages.FEATURES, "Features", "scatter_plot"),
)
PLOTLY_BYTES = 4.8e6  # size of plotly.js
INTRODUCTION_HINT = "What the report shows, and the conclusions. Plain text; an empty line starts a new paragraph."


def draw_empty() -> None:
    """Links to the pages with charts."""
    with st.container(border=True):
        st.markdown(EMPTY_NOTE)
        with st.container(horizontal=True, gap="small"):
            for path, label, icon in CHART_PAGES:
                page_parts.draw_page_link(path, label, icon)


def store_field(widget: str, name: str) -> None:
    """Callback of a field of the whole report."""
    value = st.session_state[widget]  # first, because reading the changes of another tab forgets the fields
    report_keeper.current_report().set_field(name, value)


def draw_fields() -> None:
    """Fields for heading and introduction."""
    draft = report_keeper.current_report()
    title, introduction = report_keeper.field_key("report_title"), report_keeper.field_key("report_introduction")
    st.text_input(
        "Heading", draft.title, key=title, max_chars=160, placeholder="A report of merged models",
        on_change=store_field,
        args=(title, "title"),
    )  # fmt: skip
    st.text_area(
        "Introduction", draft.introduction, key=introduction, max_chars=20_000, height=110,
        placeholder=INTRODUCTION_HINT, on_change=store_field, args=(introduction, "introduction"),
    )  # fmt: skip


def draw_download() -> None:
    """The download, disabled if the report contains private names or folders."""
    draft = report_keeper.current_report()
    report = report_sources.finish_report()
    private_words = report_sources.private_words()
    problem = check_privacy()
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        st.download_button(
            "Download the report (HTML)", lambda: render(report, private_words), FILE_NAME, "text/html", type="primary",
            on_click="ignore", icon=":material/download:", disabled=bool(problem),
        )  # fmt: skip
        for name, label, words in (
            ("tables", "Tables", "The table of each chart, folded below it."),
            ("recipes", "Recipes", "The recipe of every run, to compute it again."),
        ):
            key = report_keeper.field_key(f"report_{name}")
            st.toggle(label, getattr(draft, name), key=key, help=words, on_change=store_field, args=(key, name))
    st.caption(
        f"{plural(len(draft.views), 'view')} of at most {MAX_VIEWS}, about {size_text(PLOTLY_BYTES + draft.size)} in "
        f"all, of which {size_text(PLOTLY_BYTES)} are the plotting library. The file opens without a network and "
        "requests nothing. It contains no date, and neither your name nor your folders; runs come with recipes, "
        "digests, seeds and versions."
    )


def check_privacy() -> str:
    """Draw and return the problem that prevents the download; empty if there is none."""
    from viz.report.private_names import check_report

    try:
        check_report(report_sources.finish_report(), report_sources.private_words())
    except ReportError as error:
        st.error(page_text.safe_text(error, 1000), icon=":material/shield_person:")
        if error.word:
            label = f"“{page_text.safe_text(error.word)}” is an ordinary word; allow it"
            st.button(label, key="report_allow", on_click=report_keeper.current_report().allow, args=(error.word,))
        return str(error)
    return ""


page_parts.draw_heading(
    "Report", "Views of other pages as one file, to read offline, to print or to send: with your notes, and with "
    "everything needed to compute the numbers again."
)  # fmt: skip
draft = report_keeper.current_report()
stored_reports.draw_problem()
if not draft.views:
    draw_empty()
else:
    draw_fields()
    draw_download()
    for index, stored in enumerate(draft.views):
        view_cards.draw_card(stored, index, len(draft.views) - 1)
first_views.draw_picker(page_data.stored_runs())
stored_reports.draw_stored_reports()
