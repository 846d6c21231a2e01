"""A question with a few answers; each wrong one has a sentence of its own, and there are any number of tries."""

from __future__ import annotations

import streamlit as st

from app.views.lessons import learner, step_texts
from app.views.lessons.learner import LessonPosition


def draw_question(at: LessonPosition) -> None:
    """In the rail: the answers, and what there is to say about the one that was chosen."""
    answers = at.step.answers
    said = learner.answer_at(at)
    given = int(said[0]) if said else None
    key = f"{at.key}_answer"
    st.radio(
        "Your answer", range(len(answers)), given, key=key, on_change=_answer, args=(at, key),
        format_func=lambda place: step_texts.fill_text(at, answers[place].text, f"answer_{place}", linked=False),
        label_visibility="collapsed",
    )  # fmt: skip
    if given is None:
        return
    answer = answers[given]
    words = step_texts.fill_text(at, answer.say, "reply") if answer.say else ""
    if answer.right:
        st.success(f"Right. {words}".strip(), icon=":material/check_circle:")
    else:
        st.warning(f"Not this one. {words} Try again.".replace("  ", " "), icon=":material/undo:")


def _answer(at: LessonPosition, key: str) -> None:
    """Callback: keep the answer; the step is done, right or wrong."""
    chosen = st.session_state.get(key)
    if chosen is not None:
        learner.store_answer(at, (float(chosen),))
        learner.mark_done(at)
