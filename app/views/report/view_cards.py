"""The cards of views on the Report page: origin, title, note and position of each."""

from __future__ import annotations

import streamlit as st

from app import page_text
from app.reading import figures, report_sources
from app.session import report_keeper
from app.session.report_draft import StoredView
from app.widgets import page_parts
from merging.base.text import size_text


def edit_view(widget_key: str, number: int, field: str) -> None:
    """Callback of a view's fields: store the text of one ``field``, "title" or "note"."""
    text = st.session_state[widget_key]  # read first, because loading another tab's changes clears the fields
    report_keeper.current_report().set_text(number, **{field: text})


def draw_card(stored_view: StoredView, index: int, last_index: int) -> None:
    """Draw one view: title, note, and buttons that move it; ``index`` and ``last_index`` count from 0."""
    from viz.chart_registry import find

    number, report_view = stored_view.number, stored_view.view
    question = find(report_view.key).question
    with st.container(border=True, gap="small", key=f"report_view_{number}"):
        with st.container(gap=None):
            st.markdown(f"**{index + 1}. {page_text.safe_text(report_view.title, 160) or question}**")
            st.caption(origin_in_words(stored_view))
        title, note = (report_keeper.field_key(f"view_{name}_{number}") for name in ("title", "note"))
        heading, remark = st.columns([2, 3], gap="small")
        heading.text_input(
            "Title", report_view.title, key=title, max_chars=160, placeholder=question, on_change=edit_view,
            args=(title, number, "title"), label_visibility="collapsed",
        )  # fmt: skip
        remark.text_area(
            "Note", report_view.note, key=note, max_chars=10_000, height=68, placeholder="What it shows",
            on_change=edit_view, args=(note, number, "note"), label_visibility="collapsed",
        )  # fmt: skip
        with st.container(horizontal=True, horizontal_alignment="right", vertical_alignment="center", gap="small"):
            expanded = st.toggle("Show", key=f"show_{number}", help="The chart as it will appear in the report.")
            st.space("stretch")
            draw_move_buttons(number, index, last_index)
        if expanded:
            draw_chart(stored_view)


def draw_chart(stored_view: StoredView) -> None:
    """Draw the chart of a view."""
    from viz import theme

    report_view, key = stored_view.view, f"shown_{stored_view.number}"
    figure = figures.draw_page_figure(report_view.key, report_view.table, report_view.options, dark=False)
    st.plotly_chart(figure, theme=None, key=key, config=theme.config(key), alt=figure.layout.meta["alt"])


def origin_in_words(stored_view: StoredView) -> str:
    """The page, the runs and the size of a view; Markdown."""
    draft = report_keeper.current_report()
    titles = [
        page_text.safe_text(draft.sources[key].title, 50) for key in stored_view.view.sources if key in draft.sources
    ]
    first_titles = titles[:3] + ([f"{len(titles) - 3} more"] if len(titles) > 3 else [])
    run_note = f" of {page_text.join_words(first_titles)}" if first_titles else ""
    page = report_sources.split_address(stored_view.view.place)[0].capitalize()
    return f"{page}{run_note}, {size_text(stored_view.size)}"


def draw_move_buttons(number: int, index: int, last_index: int) -> None:
    """Draw buttons that open the view's page, move the view up or down, and remove it."""
    draft = report_keeper.current_report()
    page, query = report_sources.split_address(draft.views[index].view.place)
    page_parts.draw_page_link(f"screens/{page}.py", "Open", "open_in_new", **query)
    st.button("Up", icon=":material/arrow_upward:", key=f"up_{number}", type="tertiary", disabled=index == 0,
              on_click=draft.move, args=(number, -1))  # fmt: skip
    st.button("Down", icon=":material/arrow_downward:", key=f"down_{number}", type="tertiary",
              disabled=index == last_index, on_click=draft.move, args=(number, 1))  # fmt: skip
    st.button("Remove", icon=":material/close:", key=f"remove_{number}", type="tertiary", on_click=draft.remove,
              args=(number,))  # fmt: skip
