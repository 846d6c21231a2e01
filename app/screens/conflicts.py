"""Conflicts: where the experts of a run disagree, whatever merges them."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from app import (
    conflict_ablations,
    conflict_pairs,
    conflict_signs,
    conflict_tasks,
    data,
    joint_space,
    parts,
    state,
    text,
)
from merging.errors import MergingError
from merging.runs import PRECOMPUTED, Run

VIEWS: dict[str, Callable[[Run], None]] = {  # name in the picker and in links -> what draws it
    "sign agreement": conflict_signs.view,
    "experts against experts": conflict_pairs.view,
    "joint space of DRM": joint_space.view,
}
OF_BENCHMARK: dict[str, Callable[[], None]] = {  # the same of views that no choice of experts changes
    "ablations of DRM": conflict_ablations.view,
    "number of tasks": conflict_tasks.view,
}
ALONE = "Experts conflict with each other, and this run has only one. Choose a run of several above."


def named(run: Run) -> None:
    """Whose experts are looked at."""
    names = text.listed([f"**{text.safe_text(name, 40)}**" for name in run.experts])
    st.markdown(f"{text.plural(len(run.experts), 'expert')}: {names}. How the run merges them plays no part here.")


def first(runs: list[Run]) -> Run | None:
    """The run that the page begins with: a precomputed one of most experts, if there is one."""
    return max(runs, key=lambda run: (run.provenance == PRECOMPUTED, len(run.experts)), default=None)


def main() -> None:
    """The view that is asked for, of the experts that are asked for."""
    runs = data.runs(data.stored())
    about = st.segmented_control(
        "View", (*VIEWS, *OF_BENCHMARK), default=next(iter(VIEWS)), key=state.ABOUT, bind=state.BIND, required=True
    )
    if about in OF_BENCHMARK:
        OF_BENCHMARK[about]()
        return
    if (picked := parts.pick_run(runs, first(runs), "Experts of", named)) is None:
        return
    run, _ = picked
    if len(run.experts) < 2:
        st.info(ALONE)
        return
    try:
        VIEWS[about](run)
    except MergingError as error:
        st.error(text.safe_text(error, 1000), icon=":material/error:")


parts.heading("Conflicts", "Where experts disagree: in sign, in direction, and in the space that they share.")
main()
