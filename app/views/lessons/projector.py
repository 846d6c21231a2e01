"""A step on a projector: its words above its chart; and its notes, for a second window."""

from __future__ import annotations

import streamlit as st

from app import page_text
from app.reading import offered_lessons
from app.session import address, view_state
from app.views.lessons import guess_widgets, learner
from app.views.lessons.learner import LessonPosition
from app.widgets import chart_stage
from merging.teaching.lesson import PREDICT

STYLE = """<style>
[data-testid="stSidebar"], [data-testid="stHeader"], [data-testid="stExpandSidebarButton"] { display: none !important; }
.st-key-lesson_notes { font-size: 1.35rem; max-width: 46rem; }
.st-key-lesson_notes p, .st-key-lesson_notes li { font-size: 1.35rem; line-height: 1.5; }
</style>"""
NOTES = "_lesson_notes"  # in the session: whether this window shows notes only


def choose_step_chart() -> None:
    """Before a page is drawn for a projector: choose the step's chart and the controls that stay beside it."""
    if not view_state.is_presenting() or (at := learner.lesson_position()) is None:
        chart_stage.set_words("")
        return
    hidden_or_guessed = at.step.kind == PREDICT and at.step.guess is not None
    key = f"guess_{at.step.guess.kind}" if hidden_or_guessed and at.step.guess else at.lesson.chart(at.number)
    from app.views.lessons import class_poll  # loads what draws charts, which Home does not need

    chart_stage.choose_chart(class_poll.chart_key(at) or key)
    chart_stage.set_words(step_words(at))
    view_state.write_parameter(address.CONTROLS, ",".join(at.step.controls))


def step_words(at: LessonPosition) -> str:
    """What stands above the chart: all that the step asks and says, and after a guess what was measured; Markdown."""
    step = at.step
    parts = [offered_lessons.fill_in(at.lesson, step.ask)]
    if step.kind != PREDICT or step.guess is None:
        parts.append(offered_lessons.fill_in(at.lesson, step.say))
    elif at.number in learner.done_steps(at.lesson):
        truth = guess_widgets.truth_in_words(step.guess, offered_lessons.measured_truths(at.lesson, step))
        parts += [
            f"Measured: **{page_text.safe_text(truth, 600)}**" if truth else "",
            offered_lessons.fill_in(at.lesson, step.say),
        ]
    return "\n\n".join(part for part in parts if part)


def is_notes_window() -> bool:
    """Whether this window is the second one, with the notes of a step only."""
    if st.query_params.get(address.NOTES):
        st.session_state[NOTES] = True
    return bool(st.session_state.get(NOTES))


def draw_notes(at: LessonPosition) -> None:
    """Everything that there is to say on the step, large, without its view."""
    step = at.step
    st.html(STYLE)
    with st.container(key="lesson_notes"):
        st.caption(f"{page_text.safe_text(at.lesson.title, 120)} · step {at.number} of {len(at.lesson.steps)} · notes")
        for words_of in (step.ask, step.say, step.notes):
            if words_of:
                st.markdown(offered_lessons.fill_in(at.lesson, words_of))
        if step.guess is not None and (
            truth := guess_widgets.truth_in_words(step.guess, offered_lessons.measured_truths(at.lesson, step))
        ):
            st.markdown(f"Measured: **{page_text.safe_text(truth, 600)}**")
        for answer in step.answers:
            mark = ":material/check:" if answer.right else ":material/close:"
            st.markdown(
                f"{mark} {offered_lessons.fill_in(at.lesson, answer.text)} "
                f"*{offered_lessons.fill_in(at.lesson, answer.say)}*"
            )
        if not at.is_last:
            following = at.lesson.steps[at.number]
            st.caption(
                "Next: "
                f"{page_text.plain_text(offered_lessons.fill_in(at.lesson, following.ask or following.say))[:200]}"
            )
