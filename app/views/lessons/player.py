"""Draws a page with the rail of the lesson beside it, if there is a lesson in the address."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from app.reading import lessons
from app.session import benchmark, clicks, lesson_start, lesson_visit, state
from app.text import safe_text
from app.views.lessons import learner, projector
from app.views.lessons.learner import Place
from merging.base.errors import MergingError
from merging.teaching.lesson import DO, PREDICT

BESIDE = 1100  # px of the window from which the rail stands beside the page, else under it
STYLE = f"""<style>
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
@media (max-width: {BESIDE - 1}px) {{
  .st-key-lesson_frame {{ flex-direction: column; }}
  .st-key-lesson_frame > :has(> .st-key-lesson_view), .st-key-lesson_frame > :has(> .st-key-lesson_rail) {{
    flex: none !important; width: 100% !important; position: static;
  }}
  .st-key-lesson_rail {{
    max-height: none; border-left: 0; border-top: 3px solid #0B6AA8; padding: 1rem 0 0; overflow: visible;
  }}
}}
</style>"""
GONE = "This link is to the lesson “{}”, which this server does not have."


def enter(path: str) -> None:
    """Note which page is shown, by its path, and open the view of a step if a link or a click asked for it."""
    lesson_start.follow(path)
    if moved := lesson_visit.moved():
        state.forget_view()  # the address counts
    state.enter(path)
    if lesson_visit.read_link(step_only=moved) and path != learner.PAGE and not projector.wants_notes():
        try:
            benchmark.enter()
            at = learner.place()
            if at is not None:
                learner.open_view(at.lesson, at.number)
        except MergingError as error:
            clicks.refuse(error, "lesson")
        lesson_start.follow(path)
        state.enter(path)
    projector.enter()


def run(path: str, draw: Callable[[], None]) -> None:
    """Draw the page with this path, alone or with the rail of the lesson beside it."""
    clicks.after_parts(None)
    lessons.look_again()
    at = None if path == learner.PAGE or state.bare() else learner.place()
    if at is not None and projector.wants_notes():
        projector.notes(at)
        return
    if at is not None:
        _beside(at, draw)
    else:
        _gone(path)
        draw()
    lesson_start.done()
    lesson_visit.write(with_step=path != learner.PAGE)


def _gone(path: str) -> None:
    """Say that the link is to a lesson that is not here, if it is."""
    named = lesson_visit.current().lesson
    if named and path != learner.PAGE and not state.bare() and learner.place() is None:
        st.warning(GONE.format(safe_text(named, 60)), icon=":material/link_off:")
        st.button("Go on without it", key="lesson_gone", on_click=lesson_visit.leave)


def _beside(at: Place, draw: Callable[[], None]) -> None:
    """The page, or the picture of a guess, and the rail."""
    from app.views.lessons import (
        class_poll,
        do,
        predict,
        rail,  # these load what draws charts, which Home does not need
    )

    st.html(STYLE)
    with st.container(horizontal=True, key="lesson_frame"):
        view, side = st.container(key="lesson_view"), st.container(key="lesson_rail")
    if at.step.kind == PREDICT:
        with side:
            rail.draw(at)  # first, because the picture shows the guess
        with view:
            if not predict.picture(at):
                draw()
    else:
        with view:
            if class_poll.shown(at):
                class_poll.draw(at, [], withheld=at.number not in learner.done(at.lesson))
            else:
                draw()
        with side:
            rail.draw(at)  # last, because the page may change what the address says
    if at.step.kind == DO:
        clicks.after_parts(do.judge)
