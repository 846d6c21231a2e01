"""A guess before the view is shown: first the picture without the truth, then guess and truth in one picture."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from app.page_text import safe_text
from app.reading import offered_lessons
from app.session import click_errors, view_state
from app.views.lessons import class_poll, guess_widgets, learner
from app.views.lessons.learner import LessonPosition
from app.widgets.chart_view import draw_chart, read_clicked_mark
from merging.teaching.fact import Fact
from merging.teaching.lesson import Guess

LOCK_IN_LABEL, CHANGE_LABEL, REVEAL_LABEL = "Lock in", "Change my guess", "Reveal"
HIDDEN_NOTE = "The view is hidden until you reveal the measured result."


def is_revealed(position: LessonPosition) -> bool:
    """Whether the visitor has revealed the truth."""
    return position.number in learner.read_finished_steps(position.lesson)


def draw_picture(position: LessonPosition) -> bool:
    """Draw the guess, and the truth once the visitor reveals it; returns whether the view stays hidden."""
    guess = position.step.guess
    if guess is None:
        return False
    revealed = is_revealed(position)
    facts = offered_lessons.measured_truths(position.lesson, position.step)
    withheld = not revealed or not facts or any(fact.missing for fact in facts)
    values = learner.find_answer(position)
    if values is None and not revealed:
        values = st.session_state.get(f"{position.key}_now")
    chart_key, table, options = guess_widgets.make_guess_chart(guess, values or (), facts, withheld)
    st.header(learner.fill_text(position, position.step.ask, "ask"), anchor=False)
    if position.lesson.is_on_desk(position.number) and not revealed and not class_poll.is_class_shown(position):
        return False  # the desk is there to find the answer
    caption = "" if revealed else HIDDEN_NOTE
    on_click = _mark_cell_callback(position, guess) if guess.kind == "cells" and not revealed else None
    name = f"{position.lesson.key}_{position.number}"
    if class_poll.is_class_shown(position):
        class_poll.draw_answers(position, facts, withheld)
        return not revealed
    draw_chart(
        chart_key, table, name=name, question_drawn=True, caption=caption, sources=[], on_click=on_click, **options
    )
    return not revealed


def _mark_cell_callback(position: LessonPosition, guess: Guess) -> Callable[[], None]:
    """The callback of a click on a cell: mark the cell, or remove its mark."""

    def mark() -> None:
        if (cell := read_clicked_mark("guess_cells")) and learner.find_answer(position) is None:
            guess_widgets.toggle_cell(
                guess_widgets.make_widget_key(position, None), f"{cell['row']}, {cell['column']}", guess.most
            )

    return mark


def draw_controls(position: LessonPosition) -> None:
    """Draw the rail's controls: the widgets of the guess, the button that reveals, and at last guess and truth."""
    guess = position.step.guess
    if guess is None:
        return
    locked_guess, facts = learner.find_answer(position), offered_lessons.measured_truths(position.lesson, position.step)
    if is_revealed(position):
        _draw_sentence(guess, facts, locked_guess)
        if class_median := class_poll.median_in_words(position):
            st.markdown(f"The class: **{safe_text(class_median, 200)}**.")
        return
    if locked_guess is not None and not st.session_state.get(f"{position.key}_changing"):
        st.markdown(f"Your guess: **{safe_text(guess_widgets.guess_in_words(guess, facts, locked_guess), 300)}**")
        with st.container(horizontal=True, gap="small"):
            st.button(REVEAL_LABEL, key="lesson_reveal", type="primary", on_click=reveal_truth, args=(position,))
            st.button(CHANGE_LABEL, key="lesson_change", on_click=_unlock_guess, args=(position,))
        return
    if view_state.is_presenting():  # the lecturer reveals without a guess of their own
        st.button(REVEAL_LABEL, key="lesson_reveal", on_click=reveal_truth, args=(position,))
    values = guess_widgets.draw_guess_widget(position, guess, facts, locked_guess)
    st.session_state[f"{position.key}_now"] = values  # for the picture, which is drawn after the rail
    st.button(
        LOCK_IN_LABEL,
        key="lesson_fix",
        type="primary",
        disabled=values is None,
        on_click=_lock_in,
        args=(position, values),
    )


def _lock_in(position: LessonPosition, values: tuple[float, ...] | None) -> None:
    st.session_state.pop(f"{position.key}_changing", None)
    if values is not None:
        learner.store_answer(position, values)


def _unlock_guess(position: LessonPosition) -> None:
    st.session_state[f"{position.key}_changing"] = True


@click_errors.guard_callback
def reveal_truth(position: LessonPosition) -> None:
    """Callback: show the measured result and the view."""
    learner.mark_finished(position)
    learner.open_view(position.lesson, position.number)


def _draw_sentence(guess: Guess, facts: list[Fact], locked_guess: tuple[float, ...] | None) -> None:
    """Draw guess and truth in words, without a grade."""
    sentence = ""
    if locked_guess:
        sentence = f"Your guess: **{safe_text(guess_widgets.guess_in_words(guess, facts, locked_guess), 600)}**. "
    if truth := guess_widgets.truth_in_words(guess, facts):
        sentence += f"Measured: **{safe_text(truth, 600)}**."
    st.markdown(sentence)
