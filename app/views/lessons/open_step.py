"""An open task with a text field; the downloaded sheet contains its text, the address never does."""

from __future__ import annotations

import streamlit as st

from app.views.lessons import learner
from app.views.lessons.learner import LessonPosition

MAX_CHARACTERS = 2000  # characters of a text


def draw_field(position: LessonPosition) -> None:
    """Draw the rail's text field."""
    key = f"{position.key}_free"
    st.text_area(
        "Your answer", learner.read_open_texts(position.lesson).get(position.number, ""), key=key,
        max_chars=MAX_CHARACTERS,
        height=160, on_change=_store_text, args=(position, key), placeholder="For your sheet; you may leave it empty.",
    )  # fmt: skip
    st.caption("The text stays in this session until you download your sheet. It is not in the address.")


def _store_text(position: LessonPosition, key: str) -> None:
    """Callback: store the text; the step is finished once the text is not empty."""
    text = str(st.session_state[key]).strip()
    learner.read_open_texts(position.lesson)[position.number] = text
    if text:
        learner.mark_finished(position)
