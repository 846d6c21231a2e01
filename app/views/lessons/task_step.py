"""A task in the view, which is done when its goal holds; a hint after a while, and a button that fulfils it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import streamlit as st

from app.reading import offered_lessons, page_data
from app.session import address, click_errors, lesson_start, painting_state, view_state
from app.views.lessons import learner, step_texts
from app.views.lessons.learner import LessonPosition
from merging.base.errors import MergingError
from merging.teaching import goals

if TYPE_CHECKING:
    import pandas as pd

HINT_SECONDS = 30  # seconds until the hint is shown
STYLE = f"""<style>
.st-key-lesson_hint {{ animation: lesson_hint 0s {HINT_SECONDS}s both; }}
@keyframes lesson_hint {{ from {{ visibility: hidden; }} to {{ visibility: visible; }} }}
</style>"""
SHOWN_GOAL = "_lesson_goal"  # in the session: what the rail says of the goal


def draw_task(at: LessonPosition) -> None:
    """In the rail: whether the goal holds, the hint, and *Show me*."""
    held = goal_holds(at)
    st.session_state[SHOWN_GOAL] = held
    if held and at.number not in learner.done_steps(at.lesson):
        learner.mark_done(at)
    if held or at.number in learner.done_steps(at.lesson):
        again = "" if held else " The view has moved on since."
        st.success(f"Done.{again}", icon=":material/check_circle:")
        return
    if held is None:
        st.info("This cannot be judged here yet: a table that it needs is not stored.", icon=":material/pending:")
    else:
        st.markdown(":material/radio_button_unchecked: Not done yet. The page is judged whenever you change it.")
    if at.step.hint:
        st.html(STYLE)
        with st.container(key="lesson_hint"):
            st.markdown(f":material/lightbulb: {step_texts.fill_text(at, at.step.hint, 'hint')}")
    if at.step.show:
        st.button("Show me", key="lesson_show", icon=":material/visibility:", on_click=show_goal, args=(at,))


def goal_holds(at: LessonPosition) -> bool | None:
    """Whether the goal of the step holds in the view as it is now; None where that cannot be said."""
    if at.step.goal is None:
        return True
    known, now = offered_lessons.lesson_context(at.lesson), view_values()
    if known is None:
        return None
    try:
        return goals.is_met(at.step.goal, known.with_view(now, factors=painted_factors(now)))
    except MergingError:
        return None


def view_values() -> dict[str, str]:
    """The values of the address as they are now; the browser may not have said yet what a widget holds."""
    kept = {key: st.session_state[key] for key in address.KEYS if st.session_state.get(key) is not None}
    return view_state.implied_query() | dict(st.query_params) | {key: _as_text(value) for key, value in kept.items()}


def painted_factors(now: Mapping[str, str]) -> pd.DataFrame | None:
    """The factors that are painted in the view (tensor, numel, expert, factor); None where nothing is."""
    import pandas as pd

    from merging.methods.shared.saliency import join_thirds

    painting, run = painting_state.painting(), page_data.store().find(now.get(address.RUN, ""))
    if painting is None or run is None or now.get(address.PAINTING) != "true":
        return None
    saliency = join_thirds(page_data.saliency(run, page_data.merges_of(page_data.stored_runs()))[0])
    numel = dict(zip(saliency["tensor"], saliency["numel"], strict=True))
    rows = [
        (tensor, numel.get(tensor, 0), expert, painting.factors[i, j])
        for i, expert in enumerate(painting.experts)
        for j, tensor in enumerate(painting.tensors)
    ]
    return pd.DataFrame(rows, columns=["tensor", "numel", "expert", "factor"])


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def rerun_if_judged_anew() -> None:
    """After a part of the page was redrawn alone: draw all of it, if the rail has to say something else."""
    at = learner.lesson_position()
    if at is not None and at.step.kind == "do" and goal_holds(at) != st.session_state.get(SHOWN_GOAL):
        st.rerun()


@click_errors.guard_callback
def show_goal(at: LessonPosition) -> None:
    """Callback: open the view that fulfils the goal."""
    learner.open_view(at.lesson, at.number, **at.step.show)
    if lesson_start.requested_view() is None:
        learner.mark_done(at)
