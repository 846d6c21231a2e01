"""The rail beside a page: where one is in the lesson, what the step says and asks, and Back and Next."""

from __future__ import annotations

import streamlit as st

from app import text
from app.reading import lessons
from app.session import lesson_visit, pages
from app.views.lessons import check, do, explain, free, keys, learner, predict, sheet, texts
from app.views.lessons.learner import Place
from app.widgets.jobs import measure_button, own_machine
from app.widgets.page import open_page
from merging.base.modes import Act
from merging.teaching import goals
from merging.teaching.fact import Fact

HEADINGS = {
    "say": "Look", "predict": "Predict first", "do": "Do it", "explain": "Why", "check": "Check yourself",
    "free": "Your turn",
}  # fmt: skip
PARTS = {
    "predict": predict.controls, "do": do.draw, "explain": explain.draw, "check": check.draw, "free": free.draw,
}  # fmt: skip
SEEN = ("say", "explain")  # kinds of steps that are done when they were seen
NOT_HERE = "The words of this step rely on a result that does not hold on this benchmark. Look at the numbers instead."
NO_RUN = "This view needs a run that is not stored here: {}. Merge it on Merge; its recipe is in the lesson."


def draw(at: Place) -> None:
    """The rail of a step."""
    lesson, step = at.lesson, at.step
    if step.kind in SEEN and at.number not in learner.done(lesson):
        learner.mark(at)
    st.caption(f"{text.safe_text(lesson.title, 120)} · step {at.number} of {len(lesson.steps)}")
    st.progress(len(learner.done(lesson)) / len(lesson.steps))
    st.header(HEADINGS[step.kind], anchor=False)
    if step.say and not (step.kind == "predict" and not predict.revealed(at)):
        st.markdown(texts.filled(at, step.say, "say"))
    if step.ask and step.kind != "predict":  # whose question stands above the picture
        st.markdown(texts.filled(at, step.ask, "ask"))
    if step.outline:
        st.caption(f"Outlined in the picture: {text.safe_text(text.listed(step.outline), 300)}.")
    if part := PARTS.get(step.kind):
        part(at)
    _claims(at)
    _missing(at)
    _turning(at)


def _claims(at: Place) -> None:
    """Say so if the words of the step rely on what does not hold on this benchmark."""
    known = lessons.context(at.lesson) if at.step.claims else None
    if known and any(goals.holds(claim, known) is False for claim in at.step.claims):
        st.warning(NOT_HERE, icon=":material/rule:")


def _missing(at: Place) -> None:
    """The runs of the step's view that this server has not stored, and what its facts need to be measured."""
    for number, fact in enumerate(_unknown(at)):
        st.info(f"Not measured here: {text.safe_text(fact.missing, 400)}", icon=":material/straighten:")
        if fact.measure and not own_machine.refused(Act.MEASURE):
            st.button(
                "Measure", key=f"lesson_measure_{number}", on_click=measure_button.start,
                args=(fact.measure, [fact.run]),
            )  # fmt: skip
    if missing := lessons.view_of(at.lesson, at.lesson.place(at.number)[1])[1]:
        st.warning(NO_RUN.format(text.safe_text(text.listed(missing), 200)), icon=":material/inventory_2:")
        open_page(pages.MERGE, "Open Merge", "merge")


def _unknown(at: Place) -> list[Fact]:
    """The facts of the step that are not known here, each once."""
    step = at.step
    named = [spec for name, spec in at.lesson.facts.items() if any(f"{{{name}" in words for words in step.texts)]
    ours = step.paper.ours if step.paper else ()
    facts = [lessons.fact(at.lesson, spec) for spec in (*named, *ours)] + lessons.truths(at.lesson, step)
    return list({(fact.missing, fact.measure): fact for fact in facts if fact.missing}.values())


def _turning(at: Place) -> None:
    """Back and Next, for the mouse, the keyboard and a presentation remote, and the ways out."""
    with st.container(horizontal=True, gap="small", key="lesson_turn"):
        st.button(
            "Back", key="lesson_back", icon=":material/arrow_back:", disabled=at.number == 1, on_click=learner.turn,
            args=(at.lesson, at.number - 1), help="Key , or Page Up",
        )  # fmt: skip
        st.button(
            "Next", key="lesson_next", icon=":material/arrow_forward:", icon_position="right", disabled=at.last,
            on_click=_next, args=(at,), help="Key . or Page Down", type="primary" if _ready(at) else "secondary",
        )  # fmt: skip
    keys.listen(at.number)
    with st.container(gap="xsmall"):
        if at.last:
            sheet.offer(at.lesson)
        st.button(
            "Step’s view again", key="lesson_again", type="tertiary", icon=":material/restart_alt:",
            on_click=learner.open_view, args=(at.lesson, at.number), help="Open the view as the step began.",
        )  # fmt: skip
        open_page(pages.LESSONS, "All lessons", "school")
        st.button(
            "Open without the lesson", key="lesson_leave", type="tertiary", icon=":material/close:",
            on_click=lesson_visit.leave, help="The view stays, the lesson goes.",
        )  # fmt: skip


def _ready(at: Place) -> bool:
    return at.number in learner.done(at.lesson) or at.step.kind == "free"


def _next(at: Place) -> None:
    """Callback of Next; an open task that is left empty was skipped, which is a way to be done."""
    if at.step.kind == "free":
        learner.mark(at)
    learner.turn(at.lesson, at.number + 1)
