"""A task that is finished when its goal holds in the view, with a delayed hint and a button that fulfills it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import streamlit as st

from app.reading import offered_lessons, page_data
from app.session import address, click_errors, painting_state, view_state
from app.views.lessons import learner
from app.views.lessons.learner import LessonPosition
from merging.base.errors import MergingError
from merging.teaching import goals

if TYPE_CHECKING:
    import pandas as pd

HINT_SECONDS = 30  # until the hint is shown
HINT_STYLE = f"""<style>
.st-key-lesson_hint {{ animation: lesson_hint 0s {HINT_SECONDS}s both; }}
@keyframes lesson_hint {{ from {{ visibility: hidden; }} to {{ visibility: visible; }} }}
</style>"""
SHOWN_GOAL_KEY = "_lesson_goal"  # session key: whether the goal held when the rail was drawn


def draw_task(position: LessonPosition) -> None:
    """Draw the rail's controls: whether the goal holds, the hint, and *Show me*."""
    is_met = check_goal(position)
    st.session_state[SHOWN_GOAL_KEY] = is_met
    if is_met and position.number not in learner.read_finished_steps(position.lesson):
        learner.mark_finished(position)
    if is_met or position.number in learner.read_finished_steps(position.lesson):
        note = "" if is_met else " The view has changed since."
        st.success(f"Done.{note}", icon=":material/check_circle:")
        return
    if is_met is None:
        st.info(
            "The goal cannot be checked yet, because a table that it needs is not stored.", icon=":material/pending:"
        )
    else:
        st.markdown(":material/radio_button_unchecked: Not done yet. Every change of the page is checked.")
    if position.step.hint:
        st.html(HINT_STYLE)
        with st.container(key="lesson_hint"):
            st.markdown(f":material/lightbulb: {learner.fill_text(position, position.step.hint, 'hint')}")
    if position.step.show:
        st.button("Show me", key="lesson_show", icon=":material/visibility:", on_click=show_goal, args=(position,))


def check_goal(position: LessonPosition) -> bool | None:
    """Whether the goal of the step holds in the current view; None if that cannot be computed."""
    if position.step.goal is None:
        return True
    context, view = offered_lessons.lesson_context(position.lesson), read_view_values()
    if context is None:
        return None
    try:
        return goals.is_met(position.step.goal, context.with_view(view, factors=list_painted_factors(view)))
    except MergingError:
        return None


def read_view_values() -> dict[str, str]:
    """The current values of the address, with those of widgets that the browser may not have written into it yet."""
    widget_values = {key: st.session_state[key] for key in address.KEYS if st.session_state.get(key) is not None}
    return (
        view_state.implied_query()
        | dict(st.query_params)
        | {key: _as_text(value) for key, value in widget_values.items()}
    )


def list_painted_factors(view: Mapping[str, str]) -> pd.DataFrame | None:
    """The painted factors of the view (tensor, numel, expert, factor); None if nothing is painted."""
    import pandas as pd

    from merging.methods.shared.saliency import join_thirds

    painting, run = painting_state.current_painting(), page_data.store().find(view.get(address.RUN, ""))
    if painting is None or run is None or view.get(address.PAINTING) != "true":
        return None
    table, _ = page_data.saliency(run, page_data.list_merges(page_data.stored_runs()))
    saliency = join_thirds(table)  # one row for query, key and value of a packed tensor
    numel = dict(zip(saliency["tensor"], saliency["numel"], strict=True))
    rows = [
        (tensor, numel.get(tensor, 0), expert, painting.factors[row, column])
        for row, expert in enumerate(painting.experts)
        for column, tensor in enumerate(painting.tensors)
    ]
    return pd.DataFrame(rows, columns=["tensor", "numel", "expert", "factor"])


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def rerun_if_goal_changed() -> None:
    """Draw the whole page again after a fragment was redrawn, if the state of the goal changed."""
    position = learner.find_position()
    if (
        position is not None
        and position.step.kind == "do"
        and check_goal(position) != st.session_state.get(SHOWN_GOAL_KEY)
    ):
        st.rerun()


@click_errors.guard_callback
def show_goal(position: LessonPosition) -> None:
    """Callback: open the view that fulfills the goal."""
    learner.open_view(position.lesson, position.number, **position.step.show)
