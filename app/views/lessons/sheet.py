"""My sheet: guesses beside truths, answers and open texts as one HTML file, which the app can read back."""

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

HERE = Path(__file__).parent
FIELD = """<label for="sheet">A sheet that was downloaded here</label>
<input id="sheet" type="file" accept=".html,text/html" aria-describedby="about">
<p id="about">Restores guesses, answers and texts in this session. The file itself is not uploaded.</p>"""
MOST_CHARACTERS, MOST_ANSWERS = 50_000, 10_000  # characters of what is restored, and of its guesses and answers
SHEET_PART = re.compile(r'<script type="application/json" id="sheet">(.*?)</script>', re.DOTALL)
WHAT = "The sheet"
NOT_A_SHEET = (
    "This file is not a sheet of Mergescope: it lacks the part that guesses are restored from. Choose the HTML file "
    "that “My sheet” gave you."
)
_RESTORED = "_sheet_restored"


def draw_sheet_button(lesson: Lesson) -> None:
    """The button that gives the sheet of a lesson; its file is written when it is pressed, outside of the session."""
    contents, private = sheet_report(lesson), report_sources.private_words()
    if not contents.entries:
        st.caption("Your sheet holds what you guess, answer and write; there is nothing in it yet.")
        return
    st.download_button(
        "My sheet", lambda: sheet_html(contents, private), f"sheet_{lesson.key}.html", "text/html", key="lesson_sheet",
        on_click="ignore", icon=":material/download:",
        help="Guesses beside what was measured, answers, texts, and the views in your report, as one HTML file.",
    )  # fmt: skip
    st.caption(f"With {plural(len(contents.views), 'view')} from your report.")


def sheet_report(lesson: Lesson) -> Report:
    """What the sheet of a lesson holds now."""
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
    except ReportError:  # something private is in a view; the sheet goes without them
        return render(replace(contents, views=(), sources=()), private)


def _entries(lesson: Lesson) -> Iterator[Entry]:
    written = learner.open_texts(lesson)
    for number, step in enumerate(lesson.steps, 1):
        at = LessonPosition(lesson, step, number)
        said, measured = learner.answer_at(at), ""
        words = written.get(number, "")
        if step.guess is not None and said:
            facts = offered_lessons.measured_truths(lesson, step)
            words, measured = (
                guess_widgets.guess_in_words(step.guess, facts, said),
                guess_widgets.truth_in_words(step.guess, facts),
            )
        elif step.kind == "check" and said:
            answer = step.answers[int(said[0])]
            words = page_text.plain_text(offered_lessons.fill_in(lesson, answer.text))
            measured = "right" if answer.right else "not this one"
        elif step.kind == "do" and number in learner.done_steps(lesson):
            words = "done"
        if words:
            question = page_text.plain_text(offered_lessons.fill_in(lesson, step.ask or step.say))
            yield Entry(f"Step {number}", question, words, measured)


def _sheet_json(lesson: Lesson) -> str:
    said = lesson_progress.format_answers(
        learner.given_answers(lesson), MOST_ANSWERS
    )  # all of it, which the address may have no room for
    plain = {
        "version": 1, "lesson": lesson.key,
        "progress": lesson_progress.format_finished_steps(learner.done_steps(lesson)),
        "answers": said,
        "free": {str(number): words for number, words in learner.open_texts(lesson).items() if words},
    }  # fmt: skip
    return json.dumps(plain, ensure_ascii=False)


def draw_sheet_field() -> None:
    """On the page Lessons: the field that takes a sheet back."""
    st.header("Go on from your sheet", anchor=False)
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
        st.rerun()  # the cards above show what was restored
    lesson = offered_lessons.lessons().get(str(st.session_state.get("_sheet_lesson")))
    if lesson is not None:
        st.success(
            f"Restored “{page_text.safe_text(lesson.title, 120)}”. Open it above.", icon=":material/check_circle:"
        )


@cache
def sheet_component() -> Any:
    """The field for a file, registered once: the browser reads it, as not every server takes uploads."""
    script, style = (HERE / name for name in ("sheet.js", "sheet.css"))
    return st.components.v2.component(
        "mergescope_sheet", html=FIELD, css=style.read_text("utf-8"), js=script.read_text("utf-8")
    )


def restore_sheet(document: str) -> str:
    """Restore progress and texts from a sheet, or the part of one that keeps them; returns the key of its lesson.

    Raises:
        MergingError: it is no sheet, or of a lesson that is not here.
    """
    found = SHEET_PART.search(document)
    if found is None or len(found[1]) > MOST_CHARACTERS:
        raise RecipeError(NOT_A_SHEET)
    plain = _check_sheet(found[1])
    lesson = offered_lessons.lessons().get(plain["lesson"])
    if lesson is None:
        raise RecipeError(f"{WHAT} is of the lesson {plain['lesson'][:60]!r}, which this server does not have.")
    answers = learner.given_answers(lesson)
    answers.update(lesson_progress.parse_answers(plain["answers"], MOST_ANSWERS))
    here = lesson_visit.current_visit()
    here.progress[lesson.key] = lesson_progress.format_finished_steps(
        lesson_progress.parse_finished_steps(plain["progress"], len(lesson.steps))
    )
    here.answers[lesson.key] = lesson_progress.format_answers(answers)
    learner.open_texts(lesson).update(
        {int(number): words[:2000] for number, words in plain["free"].items() if number.isdecimal() and len(number) < 4}
    )
    return lesson.key


def _check_sheet(written: str) -> dict[str, Any]:
    """What a sheet keeps, with fields of the right types. Raises MergingError."""
    plain = strict_json.parse_json(written.encode("utf-8", "replace"), WHAT, "what it keeps")
    fits = all(isinstance(plain.get(name), str) for name in ("lesson", "progress", "answers"))
    free = plain.get("free")
    if not fits or not isinstance(free, dict) or not all(isinstance(words, str) for words in free.values()):
        raise RecipeError(f"{WHAT} is damaged: what is restored from it has other fields than lesson, did, said, free.")
    return plain
