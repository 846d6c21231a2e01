"""An open task with a text field; what is written goes into the sheet and into no address."""

from __future__ import annotations

import streamlit as st

from app.views.lessons import learner
from app.views.lessons.learner import LessonPosition

LONGEST = 2000  # characters


def draw_field(at: LessonPosition) -> None:
    """In the rail: the field."""
    key = f"{at.key}_free"
    st.text_area(
        "Your answer", learner.open_texts(at.lesson).get(at.number, ""), key=key, max_chars=LONGEST, height=160,
        on_change=_write, args=(at, key), placeholder="Kept for your sheet; you may leave it empty.",
    )  # fmt: skip
    st.caption("The text stays in this session until you download your sheet. It is not in the address.")


def _write(at: LessonPosition, key: str) -> None:
    """Callback: keep the text; the step is done once there is one."""
    text = str(st.session_state[key]).strip()
    learner.open_texts(at.lesson)[at.number] = text
    if text:
        learner.mark_done(at)
