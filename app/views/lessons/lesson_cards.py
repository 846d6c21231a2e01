"""The cards on the page Lessons."""

from __future__ import annotations

import streamlit as st

from app import page_text
from app.reading import offered_lessons
from app.session import benchmark_choice, lesson_visit
from app.views.lessons import learner
from merging.teaching.lesson import Lesson
from viz.figure_text import plural

LEVEL_COLORS = {"introductory": "green", "intermediate": "blue", "research": "violet"}
NO_LESSON = "The folders that this server reads have no lesson. `mergescope lessons new KEY` writes one."


def draw_cards() -> None:
    """Draw a card for each lesson, and a warning for each file that cannot be read."""
    lessons = offered_lessons.lessons()
    if not lessons:
        st.info(NO_LESSON)
    with st.grid(2, min_column_width=320):
        for lesson in lessons.values():
            with st.container(border=True, height="stretch", key=f"lesson_card_{lesson.key}"):
                _draw_card(lesson, lessons)
    for problem in offered_lessons.list_problems():
        st.warning(page_text.safe_text(problem, 600), icon=":material/description:")


def _draw_card(lesson: Lesson, lessons: dict[str, Lesson]) -> None:
    finished_count = len(learner.read_finished_steps(lesson))
    st.markdown(f"**{page_text.safe_text(lesson.title, 120)}**")
    st.markdown(page_text.safe_text(lesson.question, 300))
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.badge(page_text.safe_text(lesson.level, 30), color=LEVEL_COLORS.get(lesson.level, "gray"))
        st.caption(f"{lesson.minutes} minutes, {plural(len(lesson.steps), 'step')}", width="content")
    if earlier_titles := [lessons[key].title for key in lesson.after if key in lessons]:
        st.caption(f"Best after: {page_text.safe_text(page_text.join_words(earlier_titles), 200)}")
    if finished_count:
        st.progress(finished_count / len(lesson.steps), text=f"{finished_count} of {len(lesson.steps)} steps done")
    draw_lesson_link(lesson, "Go on" if finished_count else "Begin")


def draw_lesson_link(lesson: Lesson, label: str) -> None:
    """Draw a link that opens the lesson at its first unfinished step; the linked page opens the step's view."""
    first_unfinished = next(
        (number for number in range(1, len(lesson.steps) + 1) if number not in learner.read_finished_steps(lesson)),
        len(lesson.steps),
    )
    visit = lesson_visit.current_visit()
    query = (
        lesson_visit.visit_query(
            lesson_visit.Visit(lesson.key, first_unfinished, visit.progress, visit.answers, visit.class_code)
        )
        | benchmark_choice.link_query()
    )
    st.page_link(
        offered_lessons.step_page(lesson, first_unfinished),
        label=label,
        icon=":material/play_arrow:",
        query_params=query,
        width="content",
    )
