"""Drift: how far a merge moves each task's features from its expert's, layer by layer, and what that costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import streamlit as st

from app.reading import data, measurements, recipes
from app.reading.measurements import Pairs
from app.session import address, pages, run_choice
from app.views.drift import by_depth, layer_by_layer, lot, of_networks, put_back
from app.widgets import page, run_picker
from app.widgets.jobs import measure_button
from merging.study.runs.run import Run

DEPTH, LAYERS, BACK, CASES, EXEMPLARS, CAT = (
    "by depth",
    "layer by layer",
    "put back",
    "two extreme cases",
    "exemplars",
    "what CAT removes",
)
MOST = 6  # runs shown at first: those of the presets in ``FIRST``, else the first stored ones
FIRST = ("weight_averaging", "task_arithmetic", "ties", "task_arithmetic_lwptv", "cat", "lot")  # presets
NOT_MEASURED = "Feature drift has not been measured for"
NO_CONFLICTS = (
    "No run recorded what CAT removes. Runs with the edit CAT in their chain show here how much of each task vector "
    "was projected out, tensor by tensor, and how strong the conflicts were."
)


def first_runs(runs: Sequence[Run]) -> list[str]:
    """Ids of the runs shown if neither the link nor the session names any."""
    chosen = recipes.of_presets(FIRST, runs)
    return [run.id for run in (chosen if len(chosen) > 1 else runs[:MOST])]


def pick_runs(runs: Sequence[Run]) -> list[Run]:
    """The picker of runs, of CLIP at first where there are any; warns of runs in the link that this machine lacks."""
    by_id = {run.id: run for run in runs}
    chosen, lost = run_choice.picked_runs(list(by_id), first_runs([run for run in runs if not run.network] or runs))
    if lost:
        run_picker.missing_runs(lost, one_other=of_networks.ONE_OTHER)
    run_picker.draw_several(by_id, chosen, "drifting")
    if not chosen and not lost:
        st.info("Choose at least one run above.")
    return [by_id[run_id] for run_id in chosen]


def with_drift(
    runs: Sequence[Run], draw: Callable[[Pairs], None], otherwise: Callable[[Sequence[Run]], None] | None = None
) -> None:
    """Draw the measured runs that merge the first one's experts, and offer to measure the rest of those.

    ``otherwise`` draws them where none is measured.
    """
    groups = run_picker.one_set(runs)
    key, why = measurements.DRIFT, NOT_MEASURED
    if groups[0][0].network:
        key, why = measurements.LAYER_DRIFT, of_networks.NOT_MEASURED
    results = [(run, measurements.find(key, run.id)) for run in groups[0]]
    pairs = [(run, measurement) for run, measurement in results if measurement is not None]
    if rest := [run for run, measurement in results if measurement is None]:
        measure_button.missing(key, rest, why, [measurement for _, measurement in pairs])
    if pairs:
        draw(pairs)
    elif otherwise:
        otherwise(rest)
    run_picker.other_sets(groups)


def conflicts(chosen: Sequence[Run], runs: Sequence[Run]) -> None:
    """The runs that recorded what CAT removed, or a link to merge one."""
    for some in (chosen, runs):
        if having := [run for run in some if measurements.CONFLICTS in run.tables]:
            layer_by_layer.removed(having)
            return
    page.empty(NO_CONFLICTS, "Merge with CAT", pages.MERGE, chain="cat;task_arithmetic")


def main() -> None:
    """The chosen view."""
    stored = data.stored()
    runs = data.of_clip(stored)
    view = st.segmented_control(
        "View",
        (DEPTH, LAYERS, BACK, CASES, EXEMPLARS, CAT),
        default=DEPTH,
        key=address.DRIFT_VIEW,
        bind=address.BIND,
        required=True,
    )
    if view == CASES:
        lot.cases()
    elif view == EXEMPLARS:
        lot.exemplars(stored)
    elif not (runs := runs + (of_networks.offered(stored) if view == LAYERS else [])):
        page.empty("There is no run yet. Merge some experts and the result appears here.", "Merge experts", pages.MERGE)
        run_picker.left_out(stored, of_networks.CLIP_ONLY)
    elif chosen := pick_runs(runs):
        run_picker.left_out([run for run in stored if run not in runs], of_networks.CLIP_ONLY)
        if view == DEPTH:
            with_drift(chosen, lambda pairs: by_depth.view(pairs, stored))
        elif view == LAYERS:
            with_drift(chosen, layer_by_layer.view, layer_by_layer.unmeasured)
        elif view == BACK:
            put_back.view(chosen)
        else:
            conflicts(chosen, runs)


page.heading("Drift", "How far merging moves each task's features from its own expert's, where, and what that costs.")
main()
