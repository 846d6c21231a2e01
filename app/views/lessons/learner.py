"""The lesson of this session: its current step, and the finished steps, answers and texts so far."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from app.reading import offered_lessons, polls
from app.session import click_errors, lesson_start, lesson_visit
from app.widgets import page_parts
from merging.teaching import lesson_progress
from merging.teaching.lesson import Lesson, Step

LESSONS_PATH = "lessons"
_OPEN_TEXTS_KEY, _ANSWERS_KEY = "_lesson_free", "_lesson_said"  # in the session's state


@dataclass(frozen=True)
class LessonPosition:
    """A lesson, one of its steps, and the step's number, counted from 1."""

    lesson: Lesson
    step: Step
    number: int

    @property
    def key(self) -> str:
        """The beginning of the keys of this step's widgets."""
        return f"lesson_{self.lesson.key}_{self.number}"

    @property
    def is_last(self) -> bool:
        """Whether this is the last step."""
        return self.number == len(self.lesson.steps)


def find_position() -> LessonPosition | None:
    """The current lesson and step; None without a lesson, or with one that this server does not have."""
    visit = lesson_visit.current_visit()
    lesson = offered_lessons.lessons().get(visit.lesson) if visit.lesson else None
    if lesson is None:
        return None
    visit.step = min(max(visit.step, 1), len(lesson.steps))
    return LessonPosition(lesson, lesson.steps[visit.step - 1], visit.step)


def read_finished_steps(lesson: Lesson) -> frozenset[int]:
    """The numbers of the finished steps, counted from 1."""
    return lesson_progress.parse_finished_steps(
        lesson_visit.current_visit().progress.get(lesson.key, ""), len(lesson.steps)
    )


def mark_finished(position: LessonPosition) -> None:
    """Mark the step as finished."""
    lesson_visit.current_visit().progress[position.lesson.key] = lesson_progress.format_finished_steps(
        read_finished_steps(position.lesson) | {position.number}
    )


def read_answers(lesson: Lesson) -> dict[int, tuple[float, ...]]:
    """{step number: guess or answer} so far: given in this session, in the opened link, or in a restored sheet.

    The session's state holds all answers, because the address may be too short for them. Callers may change the
    returned dict, which is the stored one.
    """
    by_lesson: dict[str, dict[int, tuple[float, ...]]] = st.session_state.setdefault(_ANSWERS_KEY, {})
    answers = by_lesson.setdefault(lesson.key, {})
    answers_in_link = lesson_visit.current_visit().answers.get(lesson.key, "")
    if answers_in_link != lesson_progress.format_answers(answers):
        answers |= lesson_progress.parse_answers(answers_in_link)
    return answers


def find_answer(position: LessonPosition) -> tuple[float, ...] | None:
    """The guess or answer of a step; None without one, or if the one in the link is not possible for the step."""
    answer = read_answers(position.lesson).get(position.number)
    return answer if answer is not None and lesson_progress.is_possible_answer(position.step, answer) else None


def store_answer(position: LessonPosition, values: tuple[float, ...]) -> None:
    """Store a guess or an answer, and count it in the class."""
    answers = read_answers(position.lesson)
    answers[position.number] = values
    in_any_order = position.step.guess is not None and position.step.guess.kind == "cells"
    polls.record_answer(position.lesson.key, position.number, values, any_order=in_any_order)
    lesson_visit.current_visit().answers[position.lesson.key] = lesson_progress.format_answers(answers)


def read_open_texts(lesson: Lesson) -> dict[int, str]:
    """{step number: text} of open tasks, as stored, so that callers may change it.

    The downloaded sheet contains these texts, the address never does.
    """
    by_lesson: dict[str, dict[int, str]] = st.session_state.setdefault(_OPEN_TEXTS_KEY, {})
    return by_lesson.setdefault(lesson.key, {})


def fill_text(position: LessonPosition, markdown: str, name: str, with_glossary: bool = True) -> str:
    """Markdown of the step with its facts; ``name`` identifies the text, as words are explained at their first use."""
    text = offered_lessons.fill_in_facts(position.lesson, markdown)
    return page_parts.explain_words(text, f"{position.key}_{name}") if with_glossary else text


def open_step(lesson: Lesson, number: int) -> None:
    """Show a step and its view. If the page shows that view already, the view stays as the visitor left it."""
    visit, position = lesson_visit.current_visit(), find_position()
    is_view_shown = (
        position is not None
        and position.lesson.key == lesson.key
        and (position.step.kind != "predict" or position.number in read_finished_steps(lesson))
    )
    # A step without a view of its own shows that of an earlier step.
    shown_view_step = offered_lessons.step_with_view(lesson, visit.step) if is_view_shown else 0
    visit.lesson, visit.step = lesson.key, number
    if offered_lessons.step_with_view(lesson, number) != shown_view_step:
        open_view(lesson, number)


def open_view(lesson: Lesson, number: int, **more_values: str) -> None:
    """Open the page and the view of a step; ``more_values`` are added to the view's part of the address."""
    page, view = lesson.page_and_view(number)
    query, _ = offered_lessons.step_view(lesson, {**view, **more_values})
    lesson_start.request_view(page or LESSONS_PATH, query)


@click_errors.guard_callback
def go_to_step(lesson: Lesson, number: int) -> None:
    """Callback: go to a step of the lesson."""
    if 1 <= number <= len(lesson.steps):
        open_step(lesson, number)
