"""The cards on the page Lessons."""

from __future__ import annotations

import streamlit as st

from app import text
from app.reading import lessons
from app.session import benchmark, lesson_visit
from app.views.lessons import learner
from merging.teaching.lesson import Lesson
from viz.text import plural

LEVELS = {"introductory": "green", "intermediate": "blue", "research": "violet"}
NONE = "There is no lesson in the folders that this server reads. `python -m merging lessons new KEY` writes one."


def draw() -> None:
    """A card for each lesson, and what is wrong with files that cannot be read."""
    found = lessons.lessons()
    if not found:
        st.info(NONE)
    with st.grid(2, min_column_width=320):
        for lesson in found.values():
            with st.container(border=True, height="stretch", key=f"lesson_card_{lesson.key}"):
                _card(lesson, found)
    for problem in lessons.problems():
        st.warning(text.safe_text(problem, 600), icon=":material/description:")


def _card(lesson: Lesson, found: dict[str, Lesson]) -> None:
    finished = len(learner.done(lesson))
    st.markdown(f"**{text.safe_text(lesson.title, 120)}**")
    st.markdown(text.safe_text(lesson.question, 300))
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.badge(text.safe_text(lesson.level, 30), color=LEVELS.get(lesson.level, "gray"))
        st.caption(f"{lesson.minutes} minutes, {plural(len(lesson.steps), 'step')}", width="content")
    if before := [found[key].title for key in lesson.after if key in found]:
        st.caption(f"Best after: {text.safe_text(text.listed(before), 200)}")
    if finished:
        st.progress(finished / len(lesson.steps), text=f"{finished} of {len(lesson.steps)} steps done")
    door(lesson, "Go on" if finished else "Begin")


def door(lesson: Lesson, label: str) -> None:
    """A link that opens the lesson where one was; the page that it leads to opens the step's view."""
    first = next((n for n in range(1, len(lesson.steps) + 1) if n not in learner.done(lesson)), len(lesson.steps))
    known = lesson_visit.current()
    query = (
        lesson_visit.query(lesson_visit.Visit(lesson.key, first, known.did, known.said, known.poll)) | benchmark.query()
    )
    st.page_link(
        lessons.door(lesson, first), label=label, icon=":material/play_arrow:", query_params=query, width="content"
    )
