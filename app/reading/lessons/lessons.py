"""The lessons that this server offers, and the facts that their texts quote."""

from __future__ import annotations

from collections.abc import Mapping

from app.reading import data
from merging.errors import LessonError, TaskError
from merging.lessons import reading
from merging.lessons.context import LessonContext
from merging.lessons.fact import Fact
from merging.lessons.facts import compute
from merging.lessons.fill import fill
from merging.lessons.lesson import FactSpec, Lesson, Step


def lessons() -> dict[str, Lesson]:
    """Every lesson that can be read, by its key, bundled ones first."""
    return {lesson.key: lesson for lesson in reading.lessons(refused=[])}


def problems() -> list[str]:
    """Why files in the lessons' folders cannot be read; untrusted text."""
    refused: list[LessonError] = []
    reading.lessons(refused=refused)
    return [str(error) for error in refused]


def context(lesson: Lesson) -> LessonContext:
    """What a lesson's facts are computed from: the session's store and benchmark."""
    try:
        benchmark = data.benchmark()
    except TaskError:
        benchmark = None
    return LessonContext(data.store(), benchmark, lesson)


def facts(lesson: Lesson) -> dict[str, Fact]:
    """Every fact that the lesson declares, by its name."""
    return {name: fact(lesson, spec) for name, spec in lesson.facts.items()}


def fact(lesson: Lesson, spec: FactSpec) -> Fact:
    """One fact of a lesson."""
    return compute(spec, context(lesson))


def filled(lesson: Lesson, text: str) -> str:
    """A text of the lesson with its facts filled in; Markdown."""
    return fill(text, {name: fact(lesson, spec) for name, spec in lesson.facts.items() if f"{{{name}" in text})


def truths(lesson: Lesson, step: Step) -> list[Fact]:
    """What was measured of what a step lets guess."""
    return [fact(lesson, spec) for spec in step.truth]


def view_of(lesson: Lesson, view: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """A step's view as the address writes it, with ids in place of aliases; and the aliases whose run is not stored."""
    known, missing, written = context(lesson), [], {}
    for key, value in view.items():
        parts = value.split(",") if value.startswith("@") else [value]
        found = []
        for part in parts:
            run = known.run(part[1:]) if part.startswith("@") else None
            if part.startswith("@") and run is None:
                missing.append(part[1:])
            else:
                found.append(run.id if run is not None else part)
        if found:
            written[key] = ",".join(found)
    return written, list(dict.fromkeys(missing))


def opened_by(lesson: Lesson, number: int) -> int:
    """The number of the step whose page and view the step of that number, from 1, shows; 0 if no step has one."""
    return next((place for place in range(number, 0, -1) if lesson.steps[place - 1].page), 0)
