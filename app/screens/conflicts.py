"""Conflicts: where the experts of a run disagree, independently of the merge."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from app import text
from app.reading import data
from app.reading import names as expert_names
from app.session import address
from app.views.conflicts import drm_ablations, joint_space, pairs, signs, task_counts
from app.widgets import page, run_picker
from merging.base.errors import MergingError
from merging.study.runs.run import Run
from viz.text import plural

VIEWS: dict[str, Callable[[Run], None]] = {  # name in the picker and in links -> what draws it
    "sign agreement": signs.view,
    "experts against experts": pairs.view,
    "joint space of DRM": joint_space.view,
}
OF_BENCHMARK: dict[str, Callable[[], None]] = {  # the same for views that do not depend on chosen experts
    "ablations of DRM": drm_ablations.view,
    "number of tasks": task_counts.view,
}
ALONE = "A conflict needs several experts, and this run has only one. Choose another run above."


def named(run: Run) -> None:
    """The experts of the run."""
    names = text.listed([f"**{text.safe_text(expert_names.expert(name), 40)}**" for name in run.experts])
    st.markdown(f"{plural(len(run.experts), 'expert')}: {names}. How the run merges them does not matter here.")


def first(runs: list[Run]) -> Run | None:
    """The first run of the page: one of the library with the most experts, if there is one."""
    return max(runs, key=lambda run: (bool(data.library_title(run)), len(run.experts)), default=None)


def main() -> None:
    """The chosen view of the chosen experts."""
    runs = data.runs(data.stored())
    about = st.segmented_control(
        "View", (*VIEWS, *OF_BENCHMARK), default=next(iter(VIEWS)), key=address.CONFLICTS_VIEW, bind=address.BIND,
        required=True,
    )  # fmt: skip
    if about in OF_BENCHMARK:
        OF_BENCHMARK[about]()
        return
    if (picked := run_picker.pick_run(runs, first(runs), "Experts of", named)) is None:
        return
    run, _ = picked
    if len(run.experts) < 2:
        st.info(ALONE)
        return
    try:
        VIEWS[about](run)
    except MergingError as error:
        st.error(text.safe_text(error, 1000), icon=":material/error:")


page.heading("Conflicts", "Where experts disagree: in sign, in direction, and in the space that they share.")
main()
