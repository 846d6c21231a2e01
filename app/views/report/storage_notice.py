"""A notice in the sidebar of every page if the report cannot be stored or found."""

from __future__ import annotations

import streamlit as st

from app import page_text
from app.session import report_keeper


def draw_notice() -> None:
    """Draw the problem with the stored report, if there is one."""
    if problem := report_keeper.current_keeper().problem:
        st.caption(f":material/article: {page_text.safe_text(problem, 500)}")
