"""A visitor's current lesson and step, with progress as text, in the session and in the address."""

from __future__ import annotations

from dataclasses import dataclass, field

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from app.session import address, view_state

KEYS = (address.LESSON, address.STEP, address.PROGRESS, address.ANSWERS, address.CLASS)
MAX_CHARACTERS = 200  # characters of a key of a lesson, or of progress, in a link
_VISIT_KEY = "_lesson_visit"


@dataclass
class Visit:
    """A lesson by its key, empty for none, and its current step, from 1.

    ``progress`` and ``answers`` are texts by lesson, in the form of the address.
    """

    lesson: str = ""
    step: int = 1
    progress: dict[str, str] = field(default_factory=dict)
    answers: dict[str, str] = field(default_factory=dict)
    class_code: str = ""  # the code of a class


def current_visit() -> Visit:
    """The visit of this session."""
    visit: Visit = st.session_state.setdefault(_VISIT_KEY, Visit())
    return visit


def has_moved_in_history() -> bool:
    """Whether the browser went back or forward in its history, to another step of the lesson on the same page."""
    visit, query = current_visit(), st.query_params
    return (
        is_history_navigation()
        and query.get(address.LESSON) == visit.lesson
        and query.get(address.STEP) != str(visit.step)
    )


def is_history_navigation() -> bool:
    """Whether the browser's Back or Forward asked for this run."""
    context = get_script_run_ctx(suppress_warning=True)
    return context is not None and context.is_history_navigation


def read_link(step_only: bool = False) -> bool:
    """Read the link that was just opened; returns whether it names a lesson but no view of the page.

    With ``step_only`` the progress does not change: it continues when a visitor looks back at earlier steps.
    """
    visit, link_values = current_visit(), {key: view_state.value_from_link(key)[:MAX_CHARACTERS] for key in KEYS}
    visit.class_code = link_values[address.CLASS] or visit.class_code
    if not link_values[address.LESSON]:
        return False
    lesson, written_step = link_values[address.LESSON], link_values[address.STEP]
    visit.lesson, visit.step = lesson, int(written_step) if written_step.isdecimal() and len(written_step) < 4 else 1
    for progress, key in ((visit.progress, address.PROGRESS), (visit.answers, address.ANSWERS)):
        if link_values[key] and not step_only:
            progress[lesson] = link_values[key]
    return not set(st.query_params) - {
        *KEYS,
        address.PRESENTATION,
        address.BENCHMARK,
        address.NOTES,
        address.REPORT_TOKEN,
    }


def visit_query(visit: Visit) -> dict[str, str]:
    """The visit's part of the address; without a lesson only the code of a class."""
    if not visit.lesson:
        return {address.CLASS: visit.class_code} if visit.class_code else {}
    values = (
        visit.lesson,
        str(visit.step),
        visit.progress.get(visit.lesson),
        visit.answers.get(visit.lesson),
        visit.class_code,
    )
    return {key: value for key, value in zip(KEYS, values, strict=True) if value}


def write_visit(with_step: bool) -> None:
    """Write the visit into the address, with its step or without."""
    query = visit_query(current_visit())
    if not with_step:
        query.pop(address.STEP, None)
    for key in KEYS:
        view_state.write_parameter(key, query.get(key, ""))


def leave_lesson() -> None:
    """Leave the lesson; its progress stays in the session."""
    current_visit().lesson = ""
    for key in KEYS:
        view_state.write_parameter(key, "")
