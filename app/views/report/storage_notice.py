"""What went wrong with keeping or finding the report, in the sidebar of every page."""

from __future__ import annotations

import streamlit as st

from app import page_text
from app.session import report_keeper


def draw_notice() -> None:
    """One sentence, if there is anything to say."""
    if problem := report_keeper.current_keeper().problem:
        st.caption(f":material/article: {page_text.safe_text(problem, 500)}")
