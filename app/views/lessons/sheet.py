"""The sheet, a learner's HTML file of guesses, measured results, answers and open texts, which the app can restore."""

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

SCRIPT_FOLDER = Path(__file__).parent
FIELD_HTML = """<label for="sheet">A sheet that you downloaded from this app</label>
<input id="sheet" type="file" accept=".html,text/html" aria-describedby="about">
<p id="about">Restores guesses, answers and texts in this session. The file itself is not uploaded.</p>"""
# Characters of the restored part, and of its guesses and answers.
MAX_CHARACTERS, MAX_ANSWER_CHARACTERS = 50_000, 10_000
SHEET_PATTERN = re.compile(r'<script type="application/json" id="sheet">(.*?)</script>', re.DOTALL)
SUBJECT = "The sheet"
NOT_A_SHEET = (
    "This file is not a sheet of Mergescope: it lacks the part from which guesses are restored. Choose the HTML file "
    "that “My sheet” downloaded."
)
_RESTORED_KEY = "_sheet_restored"


def draw_sheet_button(lesson: Lesson) -> None:
    """Draw the button that downloads the sheet of a lesson; a click writes the file, outside of the session."""
    contents, private = build_sheet(lesson), report_sources.private_words()
    if not contents.entries:
        st.caption("Your sheet will contain your guesses, answers and texts; it is still empty.")
        return
    st.download_button(
        "My sheet", lambda: render_sheet(contents, private), f"sheet_{lesson.key}.html", "text/html",
        key="lesson_sheet", on_click="ignore", icon=":material/download:",
        help="Guesses beside measured results, answers, texts, and the views in your report, as one HTML file.",
    )  # fmt: skip
    st.caption(f"With {plural(len(contents.views), 'view')} from your report.")


def build_sheet(lesson: Lesson) -> Report:
    """The current contents of a lesson's sheet: its answers, and the views in the visitor's report."""
    views = report_sources.finish_report()
    context = offered_lessons.lesson_context(lesson)
    # Lessons name runs and sweeps by aliases; the sheet lists the runs.
    aliases = [alias for alias, parts in lesson.runs.items() if "sweep" not in parts] if context else []
    runs = [run for alias in aliases if context and (run := context.find_alias_run(alias)) is not None]
    sources = {source.id: source for source in (*views.sources, *map(report_sources.make_source, runs))}
    return Report(
        lesson.title, lesson.question, views.views, tuple(sources.values()), views.made_with,
        entries=tuple(_list_entries(lesson)), kept=_write_sheet_json(lesson),  # kept: what the app restores
    )  # fmt: skip


def render_sheet(contents: Report, private: PrivateNames) -> str:
    """The sheet as one HTML document."""
    try:
        return render(contents, private)
    except ReportError:  # a view contains private names, so the sheet omits all views
        return render(replace(contents, views=(), sources=()), private)


def _list_entries(lesson: Lesson) -> Iterator[Entry]:
    texts = learner.read_open_texts(lesson)
    for number, step in enumerate(lesson.steps, 1):
        position = LessonPosition(lesson, step, number)
        answer_values, measured_text = learner.find_answer(position), ""
        answer_text = texts.get(number, "")
        if step.guess is not None and answer_values:
            facts = offered_lessons.measured_truths(lesson, step)
            answer_text = guess_widgets.guess_in_words(step.guess, facts, answer_values)
            measured_text = guess_widgets.truth_in_words(step.guess, facts)
        elif step.kind == "check" and answer_values:
            answer = step.answers[int(answer_values[0])]
            answer_text = page_text.plain_text(offered_lessons.fill_in_facts(lesson, answer.text))
            measured_text = "right" if answer.right else "not this one"
        elif step.kind == "do" and number in learner.read_finished_steps(lesson):
            answer_text = "done"
        if answer_text:
            question = page_text.plain_text(offered_lessons.fill_in_facts(lesson, step.ask or step.say))
            yield Entry(f"Step {number}", question, answer_text, measured_text)


def _write_sheet_json(lesson: Lesson) -> str:
    # The sheet holds all answers, although the address may be too short for them.
    answers = lesson_progress.format_answers(learner.read_answers(lesson), MAX_ANSWER_CHARACTERS)
    data = {
        "version": 1, "lesson": lesson.key,
        "progress": lesson_progress.format_finished_steps(learner.read_finished_steps(lesson)),
        "answers": answers,
        "free": {str(number): text for number, text in learner.read_open_texts(lesson).items() if text},
    }  # fmt: skip
    return json.dumps(data, ensure_ascii=False)


def draw_sheet_field() -> None:
    """Draw the field that restores a sheet, on the page Lessons."""
    st.header("Continue from your sheet", anchor=False)
    uploaded = register_component()(key="lesson_restore", on_sheet_change=lambda: None).sheet
    if not uploaded:
        return
    if st.session_state.get(_RESTORED_KEY) != uploaded["chosen"]:  # the time of the choice of the file
        try:
            st.session_state[_RESTORED_KEY], lesson_key = uploaded["chosen"], restore_sheet(str(uploaded["kept"]))
        except MergingError as error:
            st.session_state.pop("_sheet_lesson", None)
            click_errors.draw_error(error, "sheet")
            return
        st.session_state["_sheet_lesson"] = lesson_key
        st.rerun()  # so that the cards above show the restored progress
    lesson = offered_lessons.lessons().get(str(st.session_state.get("_sheet_lesson")))
    if lesson is not None:
        st.success(
            f"Restored “{page_text.safe_text(lesson.title, 120)}”. Open it above.", icon=":material/check_circle:"
        )


@cache
def register_component() -> Any:
    """The component that asks for a sheet, registered once; the browser reads it, as some servers refuse uploads."""
    script, style = (SCRIPT_FOLDER / name for name in ("sheet.js", "sheet.css"))
    return st.components.v2.component(
        "mergescope_sheet", html=FIELD_HTML, css=style.read_text("utf-8"), js=script.read_text("utf-8")
    )


def restore_sheet(document: str) -> str:
    """Restore progress, answers and texts from a sheet or its restored part; returns the key of its lesson.

    Raises:
        MergingError: it is not a sheet, or this server does not have its lesson.
    """
    match = SHEET_PATTERN.search(document)
    if match is None or len(match[1]) > MAX_CHARACTERS:
        raise RecipeError(NOT_A_SHEET)
    data = _check_sheet(match[1])
    lesson = offered_lessons.lessons().get(data["lesson"])
    if lesson is None:
        raise RecipeError(f"{SUBJECT} is of the lesson {data['lesson'][:60]!r}, which this server does not have.")
    answers = learner.read_answers(lesson)
    answers.update(lesson_progress.parse_answers(data["answers"], MAX_ANSWER_CHARACTERS))
    visit = lesson_visit.current_visit()
    visit.progress[lesson.key] = lesson_progress.format_finished_steps(
        lesson_progress.parse_finished_steps(data["progress"], len(lesson.steps))
    )
    visit.answers[lesson.key] = lesson_progress.format_answers(answers)
    learner.read_open_texts(lesson).update(
        {int(number): text[:2000] for number, text in data["free"].items() if number.isdecimal() and len(number) < 4}
    )
    return lesson.key


def _check_sheet(text: str) -> dict[str, Any]:
    """The restored part of a sheet, with fields of the right types. Raises MergingError."""
    data = strict_json.parse_json(text.encode("utf-8", "replace"), SUBJECT, "its contents")
    has_texts = all(isinstance(data.get(name), str) for name in ("lesson", "progress", "answers"))
    free = data.get("free")
    if not has_texts or not isinstance(free, dict) or not all(isinstance(value, str) for value in free.values()):
        raise RecipeError(f"{SUBJECT} is damaged: it lacks one of the fields lesson, progress, answers and free.")
    return data
