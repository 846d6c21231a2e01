"""The frame of every page: the page alone, or with the rail of the lesson that the address names."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from app.page_text import safe_text
from app.reading import offered_lessons
from app.session import benchmark_choice, click_errors, lesson_start, lesson_visit, view_state
from app.views.lessons import learner, projector
from app.views.lessons.learner import LessonPosition
from merging.base.errors import MergingError
from merging.teaching.lesson import DO, PREDICT

RAIL_WIDTH = 1100  # px: in narrower windows the rail is below the page, not beside it
FRAME_STYLE = f"""<style>
[data-testid="stMainBlockContainer"]:has(.st-key-lesson_frame) {{ padding-left: 2.5rem; padding-right: 1.5rem; }}
.st-key-lesson_frame {{ flex-wrap: nowrap !important; align-items: flex-start; gap: 1.8rem; }}
.st-key-lesson_frame > :has(> .st-key-lesson_view) {{ flex: 1 1 0 !important; min-width: 0; }}
.st-key-lesson_frame > :has(> .st-key-lesson_rail) {{
  flex: 0 0 clamp(18rem, 25vw, 25rem) !important; position: sticky; top: 1rem; height: auto !important;
}}
.st-key-lesson_rail {{
  max-height: calc(100vh - 2rem); height: auto !important; overflow-y: auto; overflow-x: hidden;
  padding: 0.2rem 0.6rem 1rem 1.2rem; border-left: 3px solid #0B6AA8;
}}
@media (max-width: {RAIL_WIDTH - 1}px) {{
  .st-key-lesson_frame {{ flex-direction: column; }}
  .st-key-lesson_frame > :has(> .st-key-lesson_view), .st-key-lesson_frame > :has(> .st-key-lesson_rail) {{
    flex: none !important; width: 100% !important; position: static;
  }}
  .st-key-lesson_rail {{
    max-height: none; border-left: 0; border-top: 3px solid #0B6AA8; padding: 1rem 0 0; overflow: visible;
  }}
}}
</style>"""
UNKNOWN_LESSON = "This link is to the lesson “{}”, which this server does not have."


def enter_page(path: str) -> None:
    """Record the page's path, and open the view of a step if a link or a click requested it."""
    lesson_start.open_requested(path)
    if moved_in_history := lesson_visit.has_moved_in_history():
        view_state.forget_view()  # after the browser's Back, the address decides
    view_state.enter_page(path)
    if (
        lesson_visit.read_link(step_only=moved_in_history)  # Back and Forward change no progress
        and path != learner.LESSONS_PATH
        and not projector.is_notes_window()
    ):
        try:
            benchmark_choice.follow_link()
            position = learner.find_position()
            if position is not None:
                learner.open_view(position.lesson, position.number)
        except MergingError as error:
            click_errors.draw_error(error, "lesson")
        lesson_start.open_requested(path)
        view_state.enter_page(path)
    projector.choose_step_chart()


def draw_page(path: str, draw: Callable[[], None]) -> None:
    """Draw the page with this path, alone or with the rail of the lesson beside it."""
    click_errors.call_after_fragments(None)
    offered_lessons.check_store_again()
    position = None if path == learner.LESSONS_PATH or view_state.is_framed() else learner.find_position()
    if position is not None and projector.is_notes_window():
        projector.draw_notes(position)
        return
    if position is not None:
        _draw_with_rail(position, draw)
    else:
        _draw_unknown_lesson(path)
        draw()
    lesson_start.clear_request()
    lesson_visit.write_visit(with_step=path != learner.LESSONS_PATH)


def _draw_unknown_lesson(path: str) -> None:
    """Draw a warning if the link names a lesson that this server does not have."""
    lesson_key = lesson_visit.current_visit().lesson
    if lesson_key and path != learner.LESSONS_PATH and not view_state.is_framed() and learner.find_position() is None:
        st.warning(UNKNOWN_LESSON.format(safe_text(lesson_key, 60)), icon=":material/link_off:")
        st.button("Continue without it", key="lesson_gone", on_click=lesson_visit.leave_lesson)


def _draw_with_rail(position: LessonPosition, draw: Callable[[], None]) -> None:
    """Draw the page, or the picture of a guess, and the rail."""
    from app.views.lessons import class_poll, guess_step, rail, task_step

    st.html(FRAME_STYLE)
    with st.container(horizontal=True, key="lesson_frame"):
        view_slot, rail_slot = st.container(key="lesson_view"), st.container(key="lesson_rail")
    if position.step.kind == PREDICT:
        with rail_slot:
            rail.draw_rail(position)  # first, because the picture shows the guess
        with view_slot:
            if not guess_step.draw_picture(position):
                draw()
    else:
        with view_slot:
            if class_poll.is_class_shown(position):
                class_poll.draw_answers(
                    position, [], withheld=position.number not in learner.read_finished_steps(position.lesson)
                )
            else:
                draw()
        with rail_slot:
            rail.draw_rail(position)  # last, because the page may change the address
    if position.step.kind == DO:
        click_errors.call_after_fragments(task_step.rerun_if_goal_changed)
