"""The lessons that this server offers, and the facts that their texts quote.

A fact is a value that is computed from stored results; its ``FactSpec`` names the computation and its arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import streamlit as st

from app import page_text
from app.reading import page_data
from app.session import benchmark_choice as session_benchmark
from merging.base.errors import LessonError, TaskError
from merging.base.files.paths import path_fingerprint
from merging.teaching import lesson_check, lesson_files
from merging.teaching.fact import Fact
from merging.teaching.facts.fact_computation import compute_fact
from merging.teaching.fill import fill_facts
from merging.teaching.lesson import CELLS, FactSpec, Lesson, Step
from merging.teaching.lesson_context import LessonContext

FACTS_KEY = "_lessons_known"  # in the session: facts by lesson
NO_PAGE = "The lesson {} names the page {!r}, which does not exist. Name another one."
NO_BENCHMARK = "there is no benchmark on this server"


def lessons() -> dict[str, Lesson]:
    """Every readable lesson whose pages exist, by its key, bundled ones first."""
    readable = lesson_files.list_lessons(refused=[])  # the list, unread here, collects errors that would be raised
    return {lesson.key: lesson for lesson in readable if not _find_missing_page(lesson)}


def list_problems() -> list[str]:
    """Why files in the lessons' folders cannot be read; untrusted text."""
    refused: list[LessonError] = []
    readable = lesson_files.list_lessons(refused=refused)
    pages = [NO_PAGE.format(lesson.path.name, page) for lesson in readable if (page := _find_missing_page(lesson))]
    return [*map(str, refused), *pages]


def _find_missing_page(lesson: Lesson) -> str:
    """A page that the lesson names but that does not exist; empty if all of them exist."""
    return next(
        (step.page for step in lesson.steps if step.page and step.page not in lesson_check.read_app_places().pages), ""
    )


def lesson_context(lesson: Lesson) -> LessonContext | None:
    """The sources of a lesson's facts: the session's store and benchmark; None if there is no benchmark."""
    lesson_facts = _find_session_facts(lesson)
    return lesson_facts.context if lesson_facts else None


@dataclass
class LessonFacts:
    """The context of a lesson and its computed facts, valid until something is stored or deleted."""

    context: LessonContext
    facts: dict[str, Fact] = field(default_factory=dict)


def check_store_again() -> None:
    """Make the next lookup check the store for added and deleted runs; called once for each drawing of the page."""
    st.session_state[FACTS_KEY] = {}


def _find_session_facts(lesson: Lesson) -> LessonFacts | None:
    facts_by_lesson: dict[tuple[Path, Path], LessonFacts | None] = st.session_state.setdefault(FACTS_KEY, {})
    key = lesson.path, session_benchmark.benchmark_folder()
    if key not in facts_by_lesson:  # a step needs twenty facts, and each lookup costs as much as a page's list of runs
        facts_by_lesson[key] = _find_facts(lesson, key[1])
    return facts_by_lesson[key]


def _find_facts(lesson: Lesson, folder: Path) -> LessonFacts | None:
    try:
        page_data.benchmark()
    except TaskError:
        return None
    store = page_data.store()
    stored = (store.root, *store.state(), *_storage_times())
    return _cached_facts(lesson.path, path_fingerprint(lesson.path), folder, path_fingerprint(folder), stored)


def _storage_times() -> tuple[int, ...]:
    """Times at which a measurement, a sweep or a point was last stored or deleted, on which facts depend."""
    from merging.study.analysis.measurement_subject import measurements_folder
    from merging.study.sweeps import points, sweep_storage

    store = page_data.store()
    times = []
    for folder in (measurements_folder(store), store.root / sweep_storage.FOLDER, store.root / points.FOLDER):
        try:
            times.append(folder.stat().st_mtime_ns)
        except OSError:  # nothing has been stored there yet
            times.append(0)
    return tuple(times)


@lru_cache(maxsize=16)  # Streamlit's caches take longer to look up than the rest of a step takes
def _cached_facts(
    path: Path,
    state: tuple[int, ...],
    folder: Path,
    folder_state: tuple[int, ...],
    stored: tuple[Path | int, ...],
) -> LessonFacts:
    return LessonFacts(LessonContext(page_data.store(), page_data.benchmark(), lesson_files.read_lesson(path)))


def find_fact(lesson: Lesson, spec: FactSpec) -> Fact:
    """One fact of a lesson; a missing fact is looked up again."""
    lesson_facts = _find_session_facts(lesson)
    if lesson_facts is None:
        return Fact(missing=NO_BENCHMARK)
    key = repr(spec)
    if key not in lesson_facts.facts:
        lesson_facts.facts[key] = compute_fact(spec, lesson_facts.context)
    elif lesson_facts.facts[key].missing:  # it may have been measured since then, which the context does not notice
        lesson_facts.facts[key] = compute_fact(spec, LessonContext(page_data.store(), page_data.benchmark(), lesson))
    return lesson_facts.facts[key]


def fill_in_facts(lesson: Lesson, text: str) -> str:
    """A text of the lesson with its facts filled in; Markdown."""
    facts = {name: find_fact(lesson, spec) for name, spec in lesson.facts.items() if f"{{{name}" in text}
    return page_text.correct_titles(fill_facts(text, facts))


def measured_truths(lesson: Lesson, step: Step) -> list[Fact]:
    """The measured values of a step's guess; for marked cells the fact as a map of cells."""
    specs = step.truth
    if step.guess is not None and step.guess.kind == CELLS:
        specs = tuple(FactSpec(spec.fact, {**spec.arguments, "of": "cells"}) for spec in specs)
    return [find_fact(lesson, spec) for spec in specs]


def step_view(lesson: Lesson, view: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """A step's view as in the address, with ids instead of aliases, and the aliases without a stored run.

    An alias, written "@name", is the lesson's name for a run.
    """
    context = lesson_context(lesson)
    if context is None:
        return {}, []
    aliases = [part[1:] for value in view.values() for part in value.split(",") if part.startswith("@")]
    return context.resolve_view(view), [alias for alias in dict.fromkeys(aliases) if not context.find_id(alias)]


def step_with_view(lesson: Lesson, number: int) -> int:
    """The number of the step whose page and view the step ``number`` (from 1) shows; 0 if there is none."""
    return next((step for step in range(number, 0, -1) if lesson.steps[step - 1].page), 0)


def step_page(lesson: Lesson, number: int) -> str:
    """The screen that shows a step, for links."""
    return f"screens/{lesson.page_and_view(number)[0] or 'lessons'}.py"
