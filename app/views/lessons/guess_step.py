"""A guess before the view is shown: the picture with the truth withheld, then guess and truth in one."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from app.page_text import safe_text
from app.reading import offered_lessons
from app.session import click_errors, view_state
from app.views.lessons import class_poll, guess_widgets, learner, step_texts
from app.views.lessons.learner import LessonPosition
from app.widgets.chart_view import clicked_mark, draw_chart
from merging.teaching.fact import Fact
from merging.teaching.lesson import Guess

LOCK_IN, AGAIN, REVEAL = "Lock in", "Change my guess", "Reveal"
HIDDEN_NOTE = "The view is hidden until you reveal what was measured."


def is_revealed(at: LessonPosition) -> bool:
    """Whether the truth is shown."""
    return at.number in learner.done_steps(at.lesson)


def draw_picture(at: LessonPosition) -> bool:
    """Draw the guess, and the truth once it is revealed; returns whether the page stays hidden."""
    guess = at.step.guess
    if guess is None:
        return False
    open_now = is_revealed(at)
    facts = offered_lessons.measured_truths(at.lesson, at.step)
    withheld = not open_now or not facts or any(fact.missing for fact in facts)
    values = learner.answer_at(at)
    if values is None and not open_now:
        values = st.session_state.get(f"{at.key}_now")
    key, table, options = guess_widgets.guess_picture(guess, values or (), facts, withheld)
    st.header(step_texts.fill_text(at, at.step.ask, "ask"), anchor=False)
    caption = "" if open_now else HIDDEN_NOTE
    click = _click(at, guess) if guess.kind == "cells" and not open_now else None
    name = f"{at.lesson.key}_{at.number}"
    if class_poll.is_class_shown(at):
        class_poll.draw_answers(at, facts, withheld)
        return not open_now
    draw_chart(key, table, name=name, headed=True, caption=caption, of=[], on_click=click, **options)
    return not open_now


def _click(at: LessonPosition, guess: Guess) -> Callable[[], None]:
    """The callback of a click on a cell, which marks it."""

    def mark() -> None:
        if (cell := clicked_mark("guess_cells")) and learner.answer_at(at) is None:
            guess_widgets.toggle_cell(
                guess_widgets.widget_key(at, None), f"{cell['row']}, {cell['column']}", guess.most
            )

    return mark


def draw_controls(at: LessonPosition) -> None:
    """In the rail: the widgets of the guess, then the button that reveals, then guess and truth in words."""
    guess = at.step.guess
    if guess is None:
        return
    fixed, facts = learner.answer_at(at), offered_lessons.measured_truths(at.lesson, at.step)
    if is_revealed(at):
        _draw_sentence(guess, facts, fixed)
        if of_class := class_poll.median_in_words(at):
            st.markdown(f"The class: **{safe_text(of_class, 200)}**.")
        return
    if fixed is not None and not st.session_state.get(f"{at.key}_changing"):
        st.markdown(f"Your guess: **{safe_text(guess_widgets.guess_in_words(guess, facts, fixed), 300)}**")
        with st.container(horizontal=True, gap="small"):
            st.button(REVEAL, key="lesson_reveal", type="primary", on_click=reveal_truth, args=(at,))
            st.button(AGAIN, key="lesson_change", on_click=_change, args=(at,))
        return
    if view_state.is_presenting():  # the lecturer reveals without a guess of their own
        st.button(REVEAL, key="lesson_reveal", on_click=reveal_truth, args=(at,))
    values = guess_widgets.draw_guess_widget(at, guess, facts, fixed)
    st.session_state[f"{at.key}_now"] = values  # for the picture, which is drawn after the rail
    st.button(LOCK_IN, key="lesson_fix", type="primary", disabled=values is None, on_click=_fix, args=(at, values))


def _fix(at: LessonPosition, values: tuple[float, ...] | None) -> None:
    st.session_state.pop(f"{at.key}_changing", None)
    if values is not None:
        learner.store_answer(at, values)


def _change(at: LessonPosition) -> None:
    st.session_state[f"{at.key}_changing"] = True


@click_errors.guard_callback
def reveal_truth(at: LessonPosition) -> None:
    """Callback: show what was measured, and the view."""
    learner.mark_done(at)
    learner.open_view(at.lesson, at.number)


def _draw_sentence(guess: Guess, facts: list[Fact], fixed: tuple[float, ...] | None) -> None:
    """Guess and truth in words; nothing is graded."""
    words = f"Your guess: **{safe_text(guess_widgets.guess_in_words(guess, facts, fixed), 600)}**. " if fixed else ""
    if truth := guess_widgets.truth_in_words(guess, facts):
        words += f"Measured: **{safe_text(truth, 600)}**."
    st.markdown(words)
