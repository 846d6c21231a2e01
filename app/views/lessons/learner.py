"""The lesson that this session is on, the step of it, and what was done and said there."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from app.reading import offered_lessons, polls
from app.session import click_errors, lesson_start, lesson_visit
from merging.teaching import lesson_progress
from merging.teaching.lesson import Lesson, Step

PAGE = "lessons"
_FREE, _SAID = "_lesson_free", "_lesson_said"


@dataclass(frozen=True)
class LessonPosition:
    """A lesson, a step of it, and the step's number, the first is 1."""

    lesson: Lesson
    step: Step
    number: int

    @property
    def key(self) -> str:
        """The beginning of the keys of this step's widgets."""
        return f"lesson_{self.lesson.key}_{self.number}"

    @property
    def is_last(self) -> bool:
        """Whether no step follows."""
        return self.number == len(self.lesson.steps)


def lesson_position() -> LessonPosition | None:
    """Where this session is; None without a lesson, or with one that this server lacks."""
    here = lesson_visit.current_visit()
    lesson = offered_lessons.lessons().get(here.lesson) if here.lesson else None
    if lesson is None:
        return None
    here.step = min(max(here.step, 1), len(lesson.steps))
    return LessonPosition(lesson, lesson.steps[here.step - 1], here.step)


def done_steps(lesson: Lesson) -> frozenset[int]:
    """The numbers of the steps that are done."""
    return lesson_progress.parse_finished_steps(
        lesson_visit.current_visit().progress.get(lesson.key, ""), len(lesson.steps)
    )


def mark_done(at: LessonPosition) -> None:
    """Note that the step is done."""
    lesson_visit.current_visit().progress[at.lesson.key] = lesson_progress.format_finished_steps(
        done_steps(at.lesson) | {at.number}
    )


def given_answers(lesson: Lesson) -> dict[int, tuple[float, ...]]:
    """The guesses and answers so far, by the number of the step: of this session, and those of a link or a sheet.

    The address has room for some of them only.
    """
    everything: dict[str, dict[int, tuple[float, ...]]] = st.session_state.setdefault(_SAID, {})
    kept = everything.setdefault(lesson.key, {})
    linked = lesson_visit.current_visit().answers.get(lesson.key, "")
    if linked != lesson_progress.format_answers(kept):
        kept |= lesson_progress.parse_answers(linked)
    return kept


def answer_at(at: LessonPosition) -> tuple[float, ...] | None:
    """The guess or the answer of a step; None if there is none, or if a link has one that the step does not take."""
    said = given_answers(at.lesson).get(at.number)
    return said if said is not None and lesson_progress.is_possible_answer(at.step, said) else None


def store_answer(at: LessonPosition, values: tuple[float, ...]) -> None:
    """Keep a guess or an answer."""
    kept = given_answers(at.lesson)
    kept[at.number] = values
    in_any_order = at.step.guess is not None and at.step.guess.kind == "cells"
    polls.count_answer(at.lesson.key, at.number, values, any_order=in_any_order)
    lesson_visit.current_visit().answers[at.lesson.key] = lesson_progress.format_answers(kept)


def open_texts(lesson: Lesson) -> dict[int, str]:
    """What was written in open tasks, by the number of the step; it is in no address, only in the sheet."""
    everything: dict[str, dict[int, str]] = st.session_state.setdefault(_FREE, {})
    return everything.setdefault(lesson.key, {})


def open_step(lesson: Lesson, number: int) -> None:
    """Show this step, and its view, unless the page shows that already: then it stays as the visitor left it."""
    here, at = lesson_visit.current_visit(), lesson_position()
    drawn = (
        at is not None
        and at.lesson.key == lesson.key
        and (at.step.kind != "predict" or at.number in done_steps(lesson))
    )
    before = offered_lessons.step_with_view(lesson, here.step) if drawn else 0
    here.lesson, here.step = lesson.key, number
    if offered_lessons.step_with_view(lesson, number) != before:
        open_view(lesson, number)


def open_view(lesson: Lesson, number: int, **more: str) -> None:
    """Open the page and the view of a step, with ``more`` values of its address."""
    page, view = lesson.page_and_view(number)
    lesson_start.request_view(page or PAGE, offered_lessons.step_view(lesson, {**view, **more})[0])


@click_errors.guard_callback
def turn_to(lesson: Lesson, number: int) -> None:
    """Callback: go to a step of the lesson."""
    if 1 <= number <= len(lesson.steps):
        open_step(lesson, number)
