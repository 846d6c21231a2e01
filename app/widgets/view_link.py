"""The menus under a chart: *Link* with the address of the view, frames and a QR code, and *Code* for a notebook."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode

import streamlit as st

from app.reading import step_text
from app.saving import figure_files, frame_snippet, provenance
from app.saving.shown_chart import ShownChart
from app.session import address, view_state
from app.widgets import page_parts, qr_code

LINK_HELP = "A link that restores this view, and the chart alone for slides and course pages"
FRAME_HINT = (
    "The chart alone, for a frame in slides or on a course page. Add “&controls=ratio,expert” to keep controls by "
    "their names in the address, and “&background=clear” for a frame without a background."
)
CODE_HELP = "Three lines that draw this chart in a notebook, on a computer with these runs"
LESSON_KEYS = (address.LESSON, address.STEP, address.PROGRESS, address.ANSWERS, address.CLASS, address.NOTES)


def draw_link_menu(chart: ShownChart) -> None:
    """The button *Link* of a chart, and its menu."""
    popover = st.popover(
        "Link", icon=":material/link:", type="tertiary", help=LINK_HELP, key=f"link_{chart.key}", on_change="rerun"
    )
    if not popover.open:  # the code takes a while
        return
    with popover:
        page_parts.draw_address()
        frame_url = frame_address(chart.key)
        picture = figure_files.picture_data(chart, [provenance.provenance_line(chart)])
        st.caption(FRAME_HINT)
        st.code(frame_url, language=None, wrap_lines=True)
        st.code(frame_snippet.frame_html(frame_url, picture["title"]), language="html", wrap_lines=True)
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            frame_snippet.draw_copy_button(chart.key, picture, frame_url)
            st.caption("The frame, with a picture of the chart in case no server answers.")
        st.image(qr_code.qr_svg(page_parts.view_address()), caption="Scan to open this address")
        with st.expander("Make a step of this view", icon=":material/school:"):
            st.code(step_text.step_yaml(page_parts.base_and_query()[1], chart.key), language="yaml", wrap_lines=True)
            st.caption("For your own lesson: its runs and a step. `mergescope lessons new` writes the rest.")


def draw_code_menu(chart: ShownChart) -> None:
    """The button *Code* of a chart, and its menu; draws nothing on Home, whose sliders no address names."""
    if code := notebook_lines(chart):
        with st.popover("Code", icon=":material/code:", type="tertiary", help=CODE_HELP, key=f"code_{chart.key}"):
            st.code(code, language="python", wrap_lines=True)


def notebook_lines(chart: ShownChart) -> str:
    """Three lines of Python that open the view of a chart, without its lesson, and draw the chart; empty on Home."""
    page, _, query = chart.view_address.partition("?")
    shown = urlencode([pair for pair in parse_qsl(query) if pair[0] not in LESSON_KEYS], safe=",:;")
    place = f"{page}?{shown}" if shown else page
    return f'import mergescope\nview = mergescope.view("{place}")\nview["{chart.key}"]' if page else ""


def frame_address(key: str) -> str:
    """The address of the chart ``key`` alone."""
    base, query = page_parts.base_and_query()
    shown = {name: value for name, value in query.items() if name not in (*view_state.DISPLAY_KEYS, *LESSON_KEYS)}
    query = {address.FRAME: "1", address.SINGLE_CHART: key} | shown | {address.SINGLE_CHART: key}
    return f"{base}?{urlencode(query, doseq=True)}"
