"""What *Link* under a chart offers: the view's address, the chart alone for frames, a frame to copy, and a QR code."""

from __future__ import annotations

from urllib.parse import urlencode

import streamlit as st

from app.reading import step_text
from app.saving import figure, provenance, snippet
from app.saving.shown_chart import ShownChart
from app.session import address, state
from app.widgets import page, qr_code

HELP = "A link that restores this view, and the chart alone for slides and course pages"
ALONE = (
    "The chart alone, for a frame in slides or on a course page. Add “&controls=ratio,expert” to keep controls by "
    "their names in the address, and “&background=clear” for a frame without a background."
)
LESSON = (address.LESSON, address.STEP, address.PROGRESS, address.ANSWERS, address.CLASS, address.NOTES)


def link(chart: ShownChart) -> None:
    """The button of a chart, and what it opens."""
    popover = st.popover(
        "Link", icon=":material/link:", type="tertiary", help=HELP, key=f"link_{chart.key}", on_change="rerun"
    )
    if not popover.open:  # the code takes a while
        return
    with popover:
        page.address_of_view()
        alone, picture = bare(chart.key), figure.picture(chart, [provenance.line(chart)])
        st.caption(ALONE)
        st.code(alone, language=None, wrap_lines=True)
        st.code(snippet.frame(alone, picture["title"]), language="html", wrap_lines=True)
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            snippet.copier(chart.key, picture, alone)
            st.caption("The frame, with a picture of the chart for where no server answers.")
        st.image(qr_code.svg(page.view_address()), caption="Scan to open this address")
        with st.expander("Make a step of this view", icon=":material/school:"):
            st.code(step_text.of_view(page.place_of_view()[1], chart.key), language="yaml", wrap_lines=True)
            st.caption("For your own lesson: its runs and a step. `python -m merging lessons new` writes the rest.")


def bare(key: str) -> str:
    """The address of the chart ``key`` alone."""
    base, query = page.place_of_view()
    shown = {name: value for name, value in query.items() if name not in (*state.ALONE, *LESSON)}
    return f"{base}?{urlencode({address.FRAME: '1', address.SINGLE_CHART: key} | shown | {address.SINGLE_CHART: key})}"
