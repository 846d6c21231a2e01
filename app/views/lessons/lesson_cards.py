"""The cards on the page Lessons."""

from __future__ import annotations

import streamlit as st

from app import page_text
from app.reading import offered_lessons
from app.session import benchmark_choice, lesson_visit
from app.views.lessons import learner
from merging.teaching.lesson import Lesson
from viz.figure_text import plural

LEVELS = {"introductory": "green", "intermediate": "blue", "research": "violet"}
NONE = "The folders that this server reads have no lesson. `python -m merging lessons new KEY` writes one."


def draw_cards() -> None:
    """Draw a card for each lesson, and a warning for each file that cannot be read."""
    lessons = offered_lessons.lessons()
    if not lessons:
        st.info(NONE)
    with st.grid(2, min_column_width=320):
        for lesson in lessons.values():
            with st.container(border=True, height="stretch", key=f"lesson_card_{lesson.key}"):
                _draw_card(lesson, lessons)
    for problem in offered_lessons.problems():
        st.warning(page_text.safe_text(problem, 600), icon=":material/description:")


def _draw_card(lesson: Lesson, lessons: dict[str, Lesson]) -> None:
    finished = len(learner.done_steps(lesson))
    st.markdown(f"**{page_text.safe_text(lesson.title, 120)}**")
    st.markdown(page_text.safe_text(lesson.question, 300))
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.badge(page_text.safe_text(lesson.level, 30), color=LEVELS.get(lesson.level, "gray"))
        st.caption(f"{lesson.minutes} minutes, {plural(len(lesson.steps), 'step')}", width="content")
    if before := [lessons[key].title for key in lesson.after if key in lessons]:
        st.caption(f"Best after: {page_text.safe_text(page_text.join_words(before), 200)}")
    if finished:
        st.progress(finished / len(lesson.steps), text=f"{finished} of {len(lesson.steps)} steps done")
    draw_lesson_link(lesson, "Go on" if finished else "Begin")


def draw_lesson_link(lesson: Lesson, label: str) -> None:
    """Draw a link that opens the lesson at its first unfinished step; the linked page opens the step's view."""
    first = next((n for n in range(1, len(lesson.steps) + 1) if n not in learner.done_steps(lesson)), len(lesson.steps))
    visit = lesson_visit.current_visit()
    query = (
        lesson_visit.visit_query(lesson_visit.Visit(lesson.key, first, visit.progress, visit.answers, visit.class_code))
        | benchmark_choice.link_query()
    )
    st.page_link(
        offered_lessons.step_page(lesson, first),
        label=label,
        icon=":material/play_arrow:",
        query_params=query,
        width="content",
    )
