"""The lesson that this session is on, the step of it, and what was done and said there."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from app.reading import lessons, polls
from app.session import clicks, lesson_start, lesson_visit
from merging.teaching import progress
from merging.teaching.lesson import Lesson, Step

PAGE = "lessons"
_FREE, _SAID = "_lesson_free", "_lesson_said"


@dataclass(frozen=True)
class Place:
    """A lesson, a step of it, and the step's number, the first is 1."""

    lesson: Lesson
    step: Step
    number: int

    @property
    def key(self) -> str:
        """The beginning of the keys of this step's widgets."""
        return f"lesson_{self.lesson.key}_{self.number}"

    @property
    def last(self) -> bool:
        """Whether no step follows."""
        return self.number == len(self.lesson.steps)


def place() -> Place | None:
    """Where this session is; None without a lesson, or with one that this server lacks."""
    here = lesson_visit.current()
    lesson = lessons.lessons().get(here.lesson) if here.lesson else None
    if lesson is None:
        return None
    here.step = min(max(here.step, 1), len(lesson.steps))
    return Place(lesson, lesson.steps[here.step - 1], here.step)


def done(lesson: Lesson) -> frozenset[int]:
    """The numbers of the steps that are done."""
    return progress.did(lesson_visit.current().did.get(lesson.key, ""), len(lesson.steps))


def mark(at: Place) -> None:
    """Note that the step is done."""
    lesson_visit.current().did[at.lesson.key] = progress.did_text(done(at.lesson) | {at.number})


def answers(lesson: Lesson) -> dict[int, tuple[float, ...]]:
    """The guesses and answers so far, by the number of the step: of this session, and those of a link or a sheet.

    The address has room for some of them only.
    """
    everything: dict[str, dict[int, tuple[float, ...]]] = st.session_state.setdefault(_SAID, {})
    kept = everything.setdefault(lesson.key, {})
    linked = lesson_visit.current().said.get(lesson.key, "")
    if linked != progress.said_text(kept):
        kept |= progress.said(linked)
    return kept


def answer(at: Place) -> tuple[float, ...] | None:
    """The guess or the answer of a step; None if there is none, or if a link has one that the step does not take."""
    said = answers(at.lesson).get(at.number)
    return said if said is not None and progress.fits(at.step, said) else None


def say(at: Place, values: tuple[float, ...]) -> None:
    """Keep a guess or an answer."""
    kept = answers(at.lesson)
    kept[at.number] = values
    in_any_order = at.step.guess is not None and at.step.guess.kind == "cells"
    polls.answer(at.lesson.key, at.number, values, any_order=in_any_order)
    lesson_visit.current().said[at.lesson.key] = progress.said_text(kept)


def written(lesson: Lesson) -> dict[int, str]:
    """What was written in open tasks, by the number of the step; it is in no address, only in the sheet."""
    everything: dict[str, dict[int, str]] = st.session_state.setdefault(_FREE, {})
    return everything.setdefault(lesson.key, {})


def open_step(lesson: Lesson, number: int) -> None:
    """Show this step, and its view, unless the page shows that already: then it stays as the visitor left it."""
    here, at = lesson_visit.current(), place()
    drawn = at is not None and at.lesson.key == lesson.key and (at.step.kind != "predict" or at.number in done(lesson))
    before = lessons.opened_by(lesson, here.step) if drawn else 0
    here.lesson, here.step = lesson.key, number
    if lessons.opened_by(lesson, number) != before:
        open_view(lesson, number)


def open_view(lesson: Lesson, number: int, **more: str) -> None:
    """Open the page and the view of a step, with ``more`` values of its address."""
    page, view = lesson.place(number)
    lesson_start.ask(page or PAGE, lessons.view_of(lesson, {**view, **more})[0])


@clicks.guarded
def turn(lesson: Lesson, number: int) -> None:
    """Callback: go to a step of the lesson."""
    if 1 <= number <= len(lesson.steps):
        open_step(lesson, number)
