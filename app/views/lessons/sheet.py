"""My sheet: guesses beside truths, answers and open texts as one HTML file, which the app can restore."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import streamlit as st

from app import page_text
from app.reading import offered_lessons, report_sources
from app.session import click_errors, lesson_visit
from app.views.lessons import guess_widgets, learner
from app.views.lessons.learner import LessonPosition
from merging.base.errors import MergingError, RecipeError
from merging.base.files import strict_json
from merging.teaching import lesson_progress
from merging.teaching.lesson import Lesson
from viz.figure_text import plural
from viz.report import render
from viz.report.report_contents import Entry, Report, ReportError

if TYPE_CHECKING:
    from viz.report.private_names import PrivateNames

FOLDER = Path(__file__).parent
FIELD = """<label for="sheet">A sheet that you downloaded from this app</label>
<input id="sheet" type="file" accept=".html,text/html" aria-describedby="about">
<p id="about">Restores guesses, answers and texts in this session. The file itself is not uploaded.</p>"""
MOST_CHARACTERS, MOST_ANSWERS = 50_000, 10_000  # characters of the restored part, and of its guesses and answers
SHEET_PART = re.compile(r'<script type="application/json" id="sheet">(.*?)</script>', re.DOTALL)
WHAT = "The sheet"
NOT_A_SHEET = (
    "This file is not a sheet of Mergescope: it lacks the part from which guesses are restored. Choose the HTML file "
    "that “My sheet” downloaded."
)
_RESTORED = "_sheet_restored"


def draw_sheet_button(lesson: Lesson) -> None:
    """Draw the button that downloads the sheet of a lesson; a click writes the file, outside of the session."""
    contents, private = sheet_report(lesson), report_sources.private_words()
    if not contents.entries:
        st.caption("Your sheet will contain your guesses, answers and texts; it is still empty.")
        return
    st.download_button(
        "My sheet", lambda: sheet_html(contents, private), f"sheet_{lesson.key}.html", "text/html", key="lesson_sheet",
        on_click="ignore", icon=":material/download:",
        help="Guesses beside measured results, answers, texts, and the views in your report, as one HTML file.",
    )  # fmt: skip
    st.caption(f"With {plural(len(contents.views), 'view')} from your report.")


def sheet_report(lesson: Lesson) -> Report:
    """The current contents of a lesson's sheet."""
    views = report_sources.finish_report()
    known = offered_lessons.lesson_context(lesson)
    named = [alias for alias, parts in lesson.runs.items() if "sweep" not in parts] if known else []
    runs = [run for alias in named if known and (run := known.run(alias)) is not None]
    sources = {source.id: source for source in (*views.sources, *map(report_sources.source_of, runs))}
    return Report(
        lesson.title, lesson.question, views.views, tuple(sources.values()), views.made_with,
        entries=tuple(_entries(lesson)), kept=_sheet_json(lesson),
    )  # fmt: skip


def sheet_html(contents: Report, private: PrivateNames) -> str:
    """The sheet as one HTML document."""
    try:
        return render(contents, private)
    except ReportError:  # a view contains private names, so the sheet omits all views
        return render(replace(contents, views=(), sources=()), private)


def _entries(lesson: Lesson) -> Iterator[Entry]:
    written = learner.open_texts(lesson)
    for number, step in enumerate(lesson.steps, 1):
        position = LessonPosition(lesson, step, number)
        stored, measured = learner.answer_at(position), ""
        words = written.get(number, "")
        if step.guess is not None and stored:
            facts = offered_lessons.measured_truths(lesson, step)
            words, measured = (
                guess_widgets.guess_in_words(step.guess, facts, stored),
                guess_widgets.truth_in_words(step.guess, facts),
            )
        elif step.kind == "check" and stored:
            answer = step.answers[int(stored[0])]
            words = page_text.plain_text(offered_lessons.fill_in(lesson, answer.text))
            measured = "right" if answer.right else "not this one"
        elif step.kind == "do" and number in learner.done_steps(lesson):
            words = "done"
        if words:
            question = page_text.plain_text(offered_lessons.fill_in(lesson, step.ask or step.say))
            yield Entry(f"Step {number}", question, words, measured)


def _sheet_json(lesson: Lesson) -> str:
    answers = lesson_progress.format_answers(
        learner.stored_answers(lesson), MOST_ANSWERS
    )  # all answers, although the address may be too short for them
    plain = {
        "version": 1, "lesson": lesson.key,
        "progress": lesson_progress.format_finished_steps(learner.done_steps(lesson)),
        "answers": answers,
        "free": {str(number): words for number, words in learner.open_texts(lesson).items() if words},
    }  # fmt: skip
    return json.dumps(plain, ensure_ascii=False)


def draw_sheet_field() -> None:
    """Draw the field that restores a sheet, on the page Lessons."""
    st.header("Continue from your sheet", anchor=False)
    chosen = sheet_component()(key="lesson_restore", on_sheet_change=lambda: None).sheet
    if not chosen:
        return
    if st.session_state.get(_RESTORED) != chosen["chosen"]:
        try:
            st.session_state[_RESTORED], key = chosen["chosen"], restore_sheet(str(chosen["kept"]))
        except MergingError as error:
            st.session_state.pop("_sheet_lesson", None)
            click_errors.draw_error(error, "sheet")
            return
        st.session_state["_sheet_lesson"] = key
        st.rerun()  # so that the cards above show the restored progress
    lesson = offered_lessons.lessons().get(str(st.session_state.get("_sheet_lesson")))
    if lesson is not None:
        st.success(
            f"Restored “{page_text.safe_text(lesson.title, 120)}”. Open it above.", icon=":material/check_circle:"
        )


@cache
def sheet_component() -> Any:
    """The field for a file, registered once; the browser reads the file, because some servers refuse uploads."""
    script, style = (FOLDER / name for name in ("sheet.js", "sheet.css"))
    return st.components.v2.component(
        "mergescope_sheet", html=FIELD, css=style.read_text("utf-8"), js=script.read_text("utf-8")
    )


def restore_sheet(document: str) -> str:
    """Restore progress, answers and texts from a sheet or its restored part; returns the key of its lesson.

    Raises:
        MergingError: it is not a sheet, or this server does not have its lesson.
    """
    found = SHEET_PART.search(document)
    if found is None or len(found[1]) > MOST_CHARACTERS:
        raise RecipeError(NOT_A_SHEET)
    plain = _check_sheet(found[1])
    lesson = offered_lessons.lessons().get(plain["lesson"])
    if lesson is None:
        raise RecipeError(f"{WHAT} is of the lesson {plain['lesson'][:60]!r}, which this server does not have.")
    answers = learner.stored_answers(lesson)
    answers.update(lesson_progress.parse_answers(plain["answers"], MOST_ANSWERS))
    visit = lesson_visit.current_visit()
    visit.progress[lesson.key] = lesson_progress.format_finished_steps(
        lesson_progress.parse_finished_steps(plain["progress"], len(lesson.steps))
    )
    visit.answers[lesson.key] = lesson_progress.format_answers(answers)
    learner.open_texts(lesson).update(
        {int(number): words[:2000] for number, words in plain["free"].items() if number.isdecimal() and len(number) < 4}
    )
    return lesson.key


def _check_sheet(written: str) -> dict[str, Any]:
    """The restored part of a sheet, with fields of the right types. Raises MergingError."""
    plain = strict_json.parse_json(written.encode("utf-8", "replace"), WHAT, "its contents")
    fits = all(isinstance(plain.get(name), str) for name in ("lesson", "progress", "answers"))
    free = plain.get("free")
    if not fits or not isinstance(free, dict) or not all(isinstance(words, str) for words in free.values()):
        raise RecipeError(f"{WHAT} is damaged: it lacks one of the fields lesson, progress, answers and free.")
    return plain
