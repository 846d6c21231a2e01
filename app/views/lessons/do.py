"""A task in the view, which is done when its goal holds; a hint after a while, and a button that fulfils it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import streamlit as st

from app.reading import data, lessons
from app.session import address, clicks, lesson_start, painted, state
from app.views.lessons import learner, texts
from app.views.lessons.learner import Place
from merging.base.errors import MergingError
from merging.teaching import goals

if TYPE_CHECKING:
    import pandas as pd

PATIENCE = 30  # seconds until the hint is shown
STYLE = f"""<style>
.st-key-lesson_hint {{ animation: lesson_hint 0s {PATIENCE}s both; }}
@keyframes lesson_hint {{ from {{ visibility: hidden; }} to {{ visibility: visible; }} }}
</style>"""
SHOWN = "_lesson_goal"  # in the session: what the rail says of the goal


def draw(at: Place) -> None:
    """In the rail: whether the goal holds, the hint, and *Show me*."""
    held = holds(at)
    st.session_state[SHOWN] = held
    if held and at.number not in learner.done(at.lesson):
        learner.mark(at)
    if held or at.number in learner.done(at.lesson):
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
            st.markdown(f":material/lightbulb: {texts.filled(at, at.step.hint, 'hint')}")
    if at.step.show:
        st.button("Show me", key="lesson_show", icon=":material/visibility:", on_click=show, args=(at,))


def holds(at: Place) -> bool | None:
    """Whether the goal of the step holds in the view as it is now; None where that cannot be said."""
    if at.step.goal is None:
        return True
    known, now = lessons.context(at.lesson), view()
    if known is None:
        return None
    try:
        return goals.holds(at.step.goal, known.at(now, factors=factors(now)))
    except MergingError:
        return None


def view() -> dict[str, str]:
    """The values of the address as they are now; the browser may not have said yet what a widget holds."""
    kept = {key: st.session_state[key] for key in address.KEYS if st.session_state.get(key) is not None}
    return state.implied_query() | dict(st.query_params) | {key: _written(value) for key, value in kept.items()}


def factors(now: Mapping[str, str]) -> pd.DataFrame | None:
    """The factors that are painted in the view (tensor, numel, expert, factor); None where nothing is."""
    import pandas as pd

    from merging.methods.shared.saliency import whole_tensors

    painting, run = painted.painting(), data.store().find(now.get(address.RUN, ""))
    if painting is None or run is None or now.get(address.PAINTING) != "true":
        return None
    saliency = whole_tensors(data.saliency(run, data.runs(data.stored()))[0])
    numel = dict(zip(saliency["tensor"], saliency["numel"], strict=True))
    rows = [
        (tensor, numel.get(tensor, 0), expert, painting.factors[i, j])
        for i, expert in enumerate(painting.experts)
        for j, tensor in enumerate(painting.tensors)
    ]
    return pd.DataFrame(rows, columns=["tensor", "numel", "expert", "factor"])


def _written(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def judge() -> None:
    """After a part of the page was redrawn alone: draw all of it, if the rail has to say something else."""
    at = learner.place()
    if at is not None and at.step.kind == "do" and holds(at) != st.session_state.get(SHOWN):
        st.rerun()


@clicks.guarded
def show(at: Place) -> None:
    """Callback: open the view that fulfils the goal."""
    learner.open_view(at.lesson, at.number, **at.step.show)
    if lesson_start.pending() is None:
        learner.mark(at)
