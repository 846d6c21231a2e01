"""The rail beside a page: the position in the lesson, the step's text and controls, and Back and Next."""

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
DRAW_FUNCTIONS = {
    "predict": guess_step.draw_controls, "do": task_step.draw_task, "explain": paper_step.draw_paper,
    "check": question_step.draw_question, "free": open_step.draw_field,
}  # fmt: skip
READ_KINDS = ("say", "explain")  # kinds of steps that are finished once they are shown
CLAIM_FAILS = (
    "The text of this step relies on a result that does not hold on this benchmark. Look at the numbers instead."
)
MISSING_RUN = (
    "This view needs a run that this server has not stored: {}. Merge it on Merge; its recipe is in the lesson."
)


def draw_rail(position: LessonPosition) -> None:
    """Draw the rail of a step."""
    lesson, step = position.lesson, position.step
    if step.kind in READ_KINDS and position.number not in learner.read_finished_steps(lesson):
        learner.mark_finished(position)
    st.caption(f"{page_text.safe_text(lesson.title, 120)} · step {position.number} of {len(lesson.steps)}")
    st.progress(len(learner.read_finished_steps(lesson)) / len(lesson.steps))
    st.header(HEADINGS[step.kind], anchor=False)
    if step.say and not (step.kind == "predict" and not guess_step.is_revealed(position)):
        st.markdown(learner.fill_text(position, step.say, "say"))
    if step.ask and step.kind != "predict":  # the question of a prediction is above its picture
        st.markdown(learner.fill_text(position, step.ask, "ask"))
    if step.outline:
        st.caption(f"Outlined in the picture: {page_text.safe_text(page_text.join_words(step.outline), 300)}.")
    if draw_part := DRAW_FUNCTIONS.get(step.kind):
        draw_part(position)
    _draw_claims(position)
    _draw_missing(position)
    _draw_navigation(position)


def _draw_claims(position: LessonPosition) -> None:
    """Draw a warning if one of the step's claims, results that its text relies on, does not hold on this benchmark."""
    context = offered_lessons.lesson_context(position.lesson) if position.step.claims else None
    # A claim that cannot be checked (None) draws no warning.
    if context and any(goals.is_met(claim, context) is False for claim in position.step.claims):
        st.warning(CLAIM_FAILS, icon=":material/rule:")


def _draw_missing(position: LessonPosition) -> None:
    """Draw the missing measurements of the step's facts, and the runs of its view that are not stored."""
    for number, fact in enumerate(_find_unknown_facts(position)):
        st.info(f"Not measured: {page_text.safe_text(fact.missing, 400)}", icon=":material/straighten:")
        if fact.measure and not refused_action.draw_refusal(VisitorAction.MEASURE):
            st.button(
                "Measure", key=f"lesson_measure_{number}", on_click=measure_button.start_measuring,
                args=(fact.measure, [fact.run]),
            )  # fmt: skip
    _, view = position.lesson.page_and_view(position.number)
    _, missing_runs = offered_lessons.step_view(position.lesson, view)
    if missing_runs:
        st.warning(
            MISSING_RUN.format(page_text.safe_text(page_text.join_words(missing_runs), 200)),
            icon=":material/inventory_2:",
        )
        draw_page_link(pages.MERGE, "Open Merge", "merge")


def _find_unknown_facts(position: LessonPosition) -> list[Fact]:
    """The facts of the step that this server does not know, each once."""
    step = position.step
    facts_in_text = [
        spec for name, spec in position.lesson.facts.items() if any(f"{{{name}" in text for text in step.texts)
    ]
    paper_facts = step.paper.ours if step.paper else ()
    facts = [
        offered_lessons.find_fact(position.lesson, spec) for spec in (*facts_in_text, *paper_facts)
    ] + offered_lessons.measured_truths(position.lesson, step)
    return list({(fact.missing, fact.measure): fact for fact in facts if fact.missing}.values())


def _draw_navigation(position: LessonPosition) -> None:
    """Draw Back and Next for mouse, keyboard and presentation remote, and the buttons that leave the step."""
    is_ready = position.number in learner.read_finished_steps(position.lesson) or position.step.kind == "free"
    with st.container(horizontal=True, gap="small", key="lesson_turn"):
        st.button(
            "Back", key="lesson_back", icon=":material/arrow_back:", disabled=position.number == 1,
            on_click=learner.go_to_step, args=(position.lesson, position.number - 1), help="Key , or Page Up",
        )  # fmt: skip
        st.button(
            "Next", key="lesson_next", icon=":material/arrow_forward:", icon_position="right",
            disabled=position.is_last, on_click=_open_next_step, args=(position,), help="Key . or Page Down",
            type="primary" if is_ready else "secondary",
        )  # fmt: skip
    key_presses.draw_key_listener(position.number)
    with st.container(gap="xsmall"):
        if position.is_last:
            sheet.draw_sheet_button(position.lesson)
        st.button(
            "Step’s view again", key="lesson_again", type="tertiary", icon=":material/restart_alt:",
            on_click=learner.open_view, args=(position.lesson, position.number),
            help="Open the view as it was at the beginning of the step.",
        )  # fmt: skip
        draw_page_link(pages.LESSONS, "All lessons", "school")
        st.button(
            "Open without the lesson", key="lesson_leave", type="tertiary", icon=":material/close:",
            on_click=lesson_visit.leave_lesson, help="Closes the lesson; the view stays.",
        )  # fmt: skip


def _open_next_step(position: LessonPosition) -> None:
    """Callback of Next: open the next step; an open task that is skipped counts as finished."""
    if position.step.kind == "free":
        learner.mark_finished(position)
    learner.go_to_step(position.lesson, position.number + 1)
