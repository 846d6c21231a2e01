"""A question with a few answers; every wrong answer has its own reply, and tries are unlimited."""

from __future__ import annotations

import streamlit as st

from app.views.lessons import learner
from app.views.lessons.learner import LessonPosition


def draw_question(position: LessonPosition) -> None:
    """Draw the rail's answers, and the reply to the chosen one."""
    answers = position.step.answers
    stored_answer = learner.find_answer(position)
    chosen_index = int(stored_answer[0]) if stored_answer else None
    key = f"{position.key}_answer"

    def label(index: int) -> str:
        return learner.fill_text(position, answers[index].text, f"answer_{index}", with_glossary=False)

    st.radio(
        "Your answer", range(len(answers)), chosen_index, key=key, on_change=_store_answer, args=(position, key),
        format_func=label, label_visibility="collapsed",
    )  # fmt: skip
    if chosen_index is None:
        return
    answer = answers[chosen_index]
    reply = learner.fill_text(position, answer.say, "reply") if answer.say else ""
    if answer.right:
        st.success(f"Right. {reply}".strip(), icon=":material/check_circle:")
    else:
        st.warning(f"Not this one. {reply} Try again.".replace("  ", " "), icon=":material/undo:")


def _store_answer(position: LessonPosition, key: str) -> None:
    """Callback: store the answer; the step is then finished, whether it is right or wrong."""
    chosen_index = st.session_state.get(key)
    if chosen_index is not None:
        learner.store_answer(position, (float(chosen_index),))
        learner.mark_finished(position)
