"""The rail beside a page: where one is in the lesson, what the step says and asks, and Back and Next."""

from __future__ import annotations

import streamlit as st

from app import page_text
from app.reading import offered_lessons
from app.session import lesson_visit, pages
from app.views.lessons import (
    guess_step,
    key_presses,
    learner,
    open_step,
    paper_step,
    question_step,
    sheet,
    step_texts,
    task_step,
)
from app.views.lessons.learner import LessonPosition
from app.widgets.jobs import measure_button, refused_action
from app.widgets.page_parts import draw_page_link
from merging.base.modes import VisitorAction
from merging.teaching import goals
from merging.teaching.fact import Fact

HEADINGS = {
    "say": "Look", "predict": "Predict first", "do": "Do it", "explain": "Why", "check": "Check yourself",
    "free": "Your turn",
}  # fmt: skip
DRAWING = {
    "predict": guess_step.draw_controls, "do": task_step.draw_task, "explain": paper_step.draw_paper,
    "check": question_step.draw_question, "free": open_step.draw_field,
}  # fmt: skip
READ_KINDS = ("say", "explain")  # kinds of steps that are done when they were seen
NOT_HERE = "The words of this step rely on a result that does not hold on this benchmark. Look at the numbers instead."
NO_RUN = "This view needs a run that is not stored here: {}. Merge it on Merge; its recipe is in the lesson."


def draw_rail(at: LessonPosition) -> None:
    """The rail of a step."""
    lesson, step = at.lesson, at.step
    if step.kind in READ_KINDS and at.number not in learner.done_steps(lesson):
        learner.mark_done(at)
    st.caption(f"{page_text.safe_text(lesson.title, 120)} · step {at.number} of {len(lesson.steps)}")
    st.progress(len(learner.done_steps(lesson)) / len(lesson.steps))
    st.header(HEADINGS[step.kind], anchor=False)
    if step.say and not (step.kind == "predict" and not guess_step.is_revealed(at)):
        st.markdown(step_texts.fill_text(at, step.say, "say"))
    if step.ask and step.kind != "predict":  # whose question stands above the picture
        st.markdown(step_texts.fill_text(at, step.ask, "ask"))
    if step.outline:
        st.caption(f"Outlined in the picture: {page_text.safe_text(page_text.join_words(step.outline), 300)}.")
    if part := DRAWING.get(step.kind):
        part(at)
    _draw_claims(at)
    _draw_missing(at)
    _draw_turning(at)


def _draw_claims(at: LessonPosition) -> None:
    """Say so if the words of the step rely on what does not hold on this benchmark."""
    known = offered_lessons.lesson_context(at.lesson) if at.step.claims else None
    if known and any(goals.is_met(claim, known) is False for claim in at.step.claims):
        st.warning(NOT_HERE, icon=":material/rule:")


def _draw_missing(at: LessonPosition) -> None:
    """The runs of the step's view that this server has not stored, and what its facts need to be measured."""
    for number, fact in enumerate(_unknown_facts(at)):
        st.info(f"Not measured here: {page_text.safe_text(fact.missing, 400)}", icon=":material/straighten:")
        if fact.measure and not refused_action.draw_refusal(VisitorAction.MEASURE):
            st.button(
                "Measure", key=f"lesson_measure_{number}", on_click=measure_button.start_measuring,
                args=(fact.measure, [fact.run]),
            )  # fmt: skip
    if missing := offered_lessons.step_view(at.lesson, at.lesson.page_and_view(at.number)[1])[1]:
        st.warning(
            NO_RUN.format(page_text.safe_text(page_text.join_words(missing), 200)), icon=":material/inventory_2:"
        )
        draw_page_link(pages.MERGE, "Open Merge", "merge")


def _unknown_facts(at: LessonPosition) -> list[Fact]:
    """The facts of the step that are not known here, each once."""
    step = at.step
    named = [spec for name, spec in at.lesson.facts.items() if any(f"{{{name}" in words for words in step.texts)]
    ours = step.paper.ours if step.paper else ()
    facts = [
        offered_lessons.lesson_fact(at.lesson, spec) for spec in (*named, *ours)
    ] + offered_lessons.measured_truths(at.lesson, step)
    return list({(fact.missing, fact.measure): fact for fact in facts if fact.missing}.values())


def _draw_turning(at: LessonPosition) -> None:
    """Back and Next, for the mouse, the keyboard and a presentation remote, and the ways out."""
    with st.container(horizontal=True, gap="small", key="lesson_turn"):
        st.button(
            "Back", key="lesson_back", icon=":material/arrow_back:", disabled=at.number == 1, on_click=learner.turn_to,
            args=(at.lesson, at.number - 1), help="Key , or Page Up",
        )  # fmt: skip
        st.button(
            "Next", key="lesson_next", icon=":material/arrow_forward:", icon_position="right", disabled=at.is_last,
            on_click=_next, args=(at,), help="Key . or Page Down", type="primary" if _can_go_on(at) else "secondary",
        )  # fmt: skip
    key_presses.draw_key_listener(at.number)
    with st.container(gap="xsmall"):
        if at.is_last:
            sheet.draw_sheet_button(at.lesson)
        st.button(
            "Step’s view again", key="lesson_again", type="tertiary", icon=":material/restart_alt:",
            on_click=learner.open_view, args=(at.lesson, at.number), help="Open the view as the step began.",
        )  # fmt: skip
        draw_page_link(pages.LESSONS, "All lessons", "school")
        st.button(
            "Open without the lesson", key="lesson_leave", type="tertiary", icon=":material/close:",
            on_click=lesson_visit.leave_lesson, help="The view stays, the lesson goes.",
        )  # fmt: skip


def _can_go_on(at: LessonPosition) -> bool:
    return at.number in learner.done_steps(at.lesson) or at.step.kind == "free"


def _next(at: LessonPosition) -> None:
    """Callback of Next; an open task that is left empty was skipped, which is a way to be done."""
    if at.step.kind == "free":
        learner.mark_done(at)
    learner.turn_to(at.lesson, at.number + 1)
