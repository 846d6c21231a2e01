"""A step on a projector: its words above its chart; and its notes, for a second window."""

from __future__ import annotations

import streamlit as st

from app import text
from app.reading import lessons
from app.session import address, state
from app.views.lessons import guessing, learner
from app.views.lessons.learner import Place
from app.widgets import present
from merging.teaching.lesson import PREDICT

STYLE = """<style>
[data-testid="stSidebar"], [data-testid="stHeader"], [data-testid="stExpandSidebarButton"] { display: none !important; }
.st-key-lesson_notes { font-size: 1.35rem; max-width: 46rem; }
.st-key-lesson_notes p, .st-key-lesson_notes li { font-size: 1.35rem; line-height: 1.5; }
</style>"""
NOTES = "_lesson_notes"  # in the session: whether this window shows notes only


def enter() -> None:
    """Before a page is drawn for a projector: choose the step's chart and the controls that stay beside it."""
    if not state.present() or (at := learner.place()) is None:
        present.say("")
        return
    hidden_or_guessed = at.step.kind == PREDICT and at.step.guess is not None
    key = f"guess_{at.step.guess.kind}" if hidden_or_guessed and at.step.guess else at.lesson.chart(at.number)
    from app.views.lessons import class_poll  # loads what draws charts, which Home does not need

    present.choose(class_poll.chart_of(at) or key)
    present.say(words(at))
    state.write(address.CONTROLS, ",".join(at.step.controls))


def words(at: Place) -> str:
    """What stands above the chart: all that the step asks and says, and after a guess what was measured; Markdown."""
    step = at.step
    parts = [lessons.filled(at.lesson, step.ask)]
    if step.kind != PREDICT or step.guess is None:
        parts.append(lessons.filled(at.lesson, step.say))
    elif at.number in learner.done(at.lesson):
        truth = guessing.truth_in_words(step.guess, lessons.truths(at.lesson, step))
        parts += [f"Measured: **{text.safe_text(truth, 600)}**" if truth else "", lessons.filled(at.lesson, step.say)]
    return "\n\n".join(part for part in parts if part)


def wants_notes() -> bool:
    """Whether this window is the second one, with the notes of a step only."""
    if st.query_params.get(address.NOTES):
        st.session_state[NOTES] = True
    return bool(st.session_state.get(NOTES))


def notes(at: Place) -> None:
    """Everything that there is to say on the step, large, without its view."""
    step = at.step
    st.html(STYLE)
    with st.container(key="lesson_notes"):
        st.caption(f"{text.safe_text(at.lesson.title, 120)} · step {at.number} of {len(at.lesson.steps)} · notes")
        for words_of in (step.ask, step.say, step.notes):
            if words_of:
                st.markdown(lessons.filled(at.lesson, words_of))
        if step.guess is not None and (truth := guessing.truth_in_words(step.guess, lessons.truths(at.lesson, step))):
            st.markdown(f"Measured: **{text.safe_text(truth, 600)}**")
        for answer in step.answers:
            mark = ":material/check:" if answer.right else ":material/close:"
            st.markdown(f"{mark} {lessons.filled(at.lesson, answer.text)} *{lessons.filled(at.lesson, answer.say)}*")
        if not at.last:
            following = at.lesson.steps[at.number]
            st.caption(f"Next: {text.plain(lessons.filled(at.lesson, following.ask or following.say))[:200]}")
