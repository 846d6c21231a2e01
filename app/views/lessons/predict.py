"""A guess before the view is shown: the picture with the truth withheld, then guess and truth in one."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from app.reading import lessons
from app.session import clicks, state
from app.text import safe_text
from app.views.lessons import class_poll, guessing, learner, texts
from app.views.lessons.learner import Place
from app.widgets.chart import chart, clicked
from merging.teaching.fact import Fact
from merging.teaching.lesson import Guess

FIX, AGAIN, REVEAL = "Lock in", "Change my guess", "Reveal"
HIDDEN = "The view is hidden until you reveal what was measured."


def revealed(at: Place) -> bool:
    """Whether the truth is shown."""
    return at.number in learner.done(at.lesson)


def picture(at: Place) -> bool:
    """Draw the guess, and the truth once it is revealed; returns whether the page stays hidden."""
    guess = at.step.guess
    if guess is None:
        return False
    open_now = revealed(at)
    facts = lessons.truths(at.lesson, at.step)
    withheld = not open_now or not facts or any(fact.missing for fact in facts)
    values = learner.answer(at)
    if values is None and not open_now:
        values = st.session_state.get(f"{at.key}_now")
    key, table, options = guessing.picture(guess, values or (), facts, withheld)
    st.header(texts.filled(at, at.step.ask, "ask"), anchor=False)
    caption = "" if open_now else HIDDEN
    click = _click(at, guess) if guess.kind == "cells" and not open_now else None
    name = f"{at.lesson.key}_{at.number}"
    if class_poll.shown(at):
        class_poll.draw(at, facts, withheld)
        return not open_now
    chart(key, table, name=name, headed=True, caption=caption, of=[], on_click=click, **options)
    return not open_now


def _click(at: Place, guess: Guess) -> Callable[[], None]:
    """The callback of a click on a cell, which marks it."""

    def mark() -> None:
        if (cell := clicked("guess_cells")) and learner.answer(at) is None:
            guessing.toggle(guessing.key_of(at, None), f"{cell['row']}, {cell['column']}", guess.most)

    return mark


def controls(at: Place) -> None:
    """In the rail: the widgets of the guess, then the button that reveals, then guess and truth in words."""
    guess = at.step.guess
    if guess is None:
        return
    fixed, facts = learner.answer(at), lessons.truths(at.lesson, at.step)
    if revealed(at):
        _sentence(guess, facts, fixed)
        if of_class := class_poll.median_in_words(at):
            st.markdown(f"The class: **{safe_text(of_class, 200)}**.")
        return
    if fixed is not None and not st.session_state.get(f"{at.key}_changing"):
        st.markdown(f"Your guess: **{safe_text(guessing.in_words(guess, facts, fixed), 300)}**")
        with st.container(horizontal=True, gap="small"):
            st.button(REVEAL, key="lesson_reveal", type="primary", on_click=reveal, args=(at,))
            st.button(AGAIN, key="lesson_change", on_click=_change, args=(at,))
        return
    if state.present():  # the lecturer reveals without a guess of their own
        st.button(REVEAL, key="lesson_reveal", on_click=reveal, args=(at,))
    values = guessing.widget(at, guess, facts, fixed)
    st.session_state[f"{at.key}_now"] = values  # for the picture, which is drawn after the rail
    st.button(FIX, key="lesson_fix", type="primary", disabled=values is None, on_click=_fix, args=(at, values))


def _fix(at: Place, values: tuple[float, ...] | None) -> None:
    st.session_state.pop(f"{at.key}_changing", None)
    if values is not None:
        learner.say(at, values)


def _change(at: Place) -> None:
    st.session_state[f"{at.key}_changing"] = True


@clicks.guarded
def reveal(at: Place) -> None:
    """Callback: show what was measured, and the view."""
    learner.mark(at)
    learner.open_view(at.lesson, at.number)


def _sentence(guess: Guess, facts: list[Fact], fixed: tuple[float, ...] | None) -> None:
    """Guess and truth in words; nothing is graded."""
    words = f"Your guess: **{safe_text(guessing.in_words(guess, facts, fixed), 600)}**. " if fixed else ""
    if truth := guessing.truth_in_words(guess, facts):
        words += f"Measured: **{safe_text(truth, 600)}**."
    st.markdown(words)
