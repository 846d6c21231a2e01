"""A step on a projector: its text above its chart, and its notes for a second window."""

from __future__ import annotations

import streamlit as st

from app import page_text
from app.reading import offered_lessons
from app.session import address, view_state
from app.views.lessons import guess_widgets, learner
from app.views.lessons.learner import LessonPosition
from app.widgets import chart_stage
from merging.teaching.lesson import PREDICT

NOTES_STYLE = """<style>
[data-testid="stSidebar"], [data-testid="stHeader"], [data-testid="stExpandSidebarButton"] { display: none !important; }
.st-key-lesson_notes { font-size: 1.35rem; max-width: 46rem; }
.st-key-lesson_notes p, .st-key-lesson_notes li { font-size: 1.35rem; line-height: 1.5; }
</style>"""
NOTES_KEY = "_lesson_notes"  # session key: whether this window shows only notes


def choose_step_chart() -> None:
    """Choose the step's chart and its visible controls before a page is drawn for a projector."""
    if not view_state.is_presenting() or (position := learner.find_position()) is None:
        chart_stage.set_words("")
        return
    guess = position.step.guess if position.step.kind == PREDICT else None
    is_on_desk = position.lesson.is_on_desk(position.number)
    key = f"guess_{guess.kind}" if guess and not is_on_desk else position.lesson.chart(position.number)
    from app.views.lessons import class_poll  # loads what draws charts, which Home does not need

    chart_stage.choose_chart(class_poll.choose_chart_key(position) or key)
    chart_stage.set_words(make_step_text(position))
    view_state.write_parameter(address.CONTROLS, ",".join(position.step.controls))


def make_step_text(position: LessonPosition) -> str:
    """The text above the chart: the step's question and text, and after a guess the measured result; Markdown."""
    step = position.step
    parts = [offered_lessons.fill_in_facts(position.lesson, step.ask)]
    if step.kind != PREDICT or step.guess is None:
        parts.append(offered_lessons.fill_in_facts(position.lesson, step.say))
    elif position.number in learner.read_finished_steps(position.lesson):
        truth = guess_widgets.truth_in_words(step.guess, offered_lessons.measured_truths(position.lesson, step))
        parts += [
            f"Measured: **{page_text.safe_text(truth, 600)}**" if truth else "",
            offered_lessons.fill_in_facts(position.lesson, step.say),
        ]
    return "\n\n".join(part for part in parts if part)


def is_notes_window() -> bool:
    """Whether this window is the second one, which shows only a step's notes."""
    if st.query_params.get(address.NOTES):
        st.session_state[NOTES_KEY] = True
    return bool(st.session_state.get(NOTES_KEY))


def draw_notes(position: LessonPosition) -> None:
    """Draw all texts of the step in large type, without its view."""
    step = position.step
    st.html(NOTES_STYLE)
    with st.container(key="lesson_notes"):
        title, steps = page_text.safe_text(position.lesson.title, 120), len(position.lesson.steps)
        st.caption(f"{title} · step {position.number} of {steps} · notes")
        for text in (step.ask, step.say, step.notes):
            if text:
                st.markdown(offered_lessons.fill_in_facts(position.lesson, text))
        if step.guess is not None and (
            truth := guess_widgets.truth_in_words(step.guess, offered_lessons.measured_truths(position.lesson, step))
        ):
            st.markdown(f"Measured: **{page_text.safe_text(truth, 600)}**")
        for answer in step.answers:
            mark = ":material/check:" if answer.right else ":material/close:"
            st.markdown(
                f"{mark} {offered_lessons.fill_in_facts(position.lesson, answer.text)} "
                f"*{offered_lessons.fill_in_facts(position.lesson, answer.say)}*"
            )
        if not position.is_last:
            next_step = position.lesson.steps[position.number]
            text = offered_lessons.fill_in_facts(position.lesson, next_step.ask or next_step.say)
            st.caption(f"Next: {page_text.plain_text(text)[:200]}")
