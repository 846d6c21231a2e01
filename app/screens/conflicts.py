"""Conflicts: where the experts of a run disagree, independently of the merge."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import streamlit as st

from app import page_text
from app.reading import expert_names, measurements, page_data
from app.session import address
from app.views.conflicts import (
    drm_ablations,
    expert_pairs,
    joint_space,
    model_map,
    sign_agreement,
    spectra,
    task_counts,
)
from app.widgets import page_parts, run_picker
from app.widgets.panels import network_panel
from merging.base.errors import MergingError
from merging.models.task_checkpoints import count_experts
from merging.study.runs.run import Run

SPECTRA = "spectra"  # of the merged change, too
VIEWS: dict[str, Callable[[Run], None]] = {  # name in the picker and in links -> function that draws it
    "sign agreement": sign_agreement.draw_view,
    "experts against experts": expert_pairs.draw_view,
    "joint space of DRM": joint_space.draw_view,
    SPECTRA: spectra.draw_view,
    "map of models": model_map.draw_view,
}
BENCHMARK_VIEWS: dict[str, Callable[[], None]] = {  # views that do not depend on the chosen experts
    "ablations of DRM": drm_ablations.draw_view,
    "number of tasks": task_counts.draw_view,
}
ONE_EXPERT = "A conflict needs several experts, and this run has only one. Choose another run above."


def draw_experts(run: Run, depends_on_merge: bool) -> None:
    """The experts of the run."""
    names = page_text.join_words(
        [f"**{page_text.safe_text(expert_names.expert_name(name), 40)}**" for name in run.experts]
    )
    note = "" if depends_on_merge else " This page does not depend on how the run merges them."
    st.markdown(f"{count_experts(run.experts)}: {names}.{note}")


def main() -> None:
    """The chosen view of the chosen experts."""
    runs = page_data.list_merges(page_data.stored_runs())
    view = page_parts.pick_button("View", (*VIEWS, *BENCHMARK_VIEWS), address.CONFLICTS_VIEW)
    if view in BENCHMARK_VIEWS:
        BENCHMARK_VIEWS[view]()
        return
    # The first run of the page is one of the library with the most experts, if there is one.
    first = max(runs, key=lambda run: (bool(page_data.library_title(run)), len(run.experts)), default=None)
    depends = view == SPECTRA  # on the merge, so it opens on a run whose results are stored
    ready = [run for run in runs if measurements.find_measurement(measurements.SPECTRA, run.id)] if depends else None
    draw_text = partial(draw_experts, depends_on_merge=depends)
    if (picked := run_picker.pick_run(runs, first, "Experts of", draw_text, ready)) is None:
        return
    run, _ = picked
    if len(run.experts) < 2:
        st.info(ONE_EXPERT)
        return
    try:
        network_panel.draw_panel(run, ("cosine", "agreement", "update"))
        VIEWS[view](run)
    except MergingError as error:
        st.error(page_text.safe_text(error, 1000), icon=":material/error:")


page_parts.draw_heading("Conflicts", "Where experts disagree: in sign, in direction, and in the space that they share.")
main()
