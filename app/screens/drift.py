"""Drift: how far a merge moves each task's features from its expert's, layer by layer, and the cost in accuracy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import streamlit as st

from app import page_text
from app.reading import measurements, page_data, recipes
from app.reading.measurements import MeasuredRuns
from app.session import address, pages, run_choice
from app.views.drift import by_depth, layer_by_layer, lot_cases, other_networks, restoring, similarity
from app.widgets import page_parts, run_picker
from app.widgets.jobs import measure_button
from app.widgets.panels import network_panel
from merging.study.runs.run import Run

# RESTORING: tensors of the merged model are put back to pretrained; CASES: the two extremes of LOT's theory.
DEPTH = "by depth"
LAYERS = "layer by layer"
RESTORING = "put back"
CASES = "two extreme cases"
EXEMPLARS = "exemplars"
CAT = "what CAT removes"
SIMILARITY = "model against model"
MAX_FIRST_RUNS = 6  # runs shown at first if fewer than two runs have a preset in ``FIRST_PRESETS``
FIRST_PRESETS = ("weight_averaging", "task_arithmetic", "ties", "task_arithmetic_lwptv", "cat", "lot")  # presets
# Of the map above a view of several runs, which is the first run's: the first quantity that is stored.
FIRST_QUANTITIES = {DEPTH: ("drift", "moved"), CAT: ("update", "moved")}
NOT_MEASURED = "Feature drift has not been measured for"
NO_CONFLICTS = (
    "No run recorded what CAT removes. Runs with the edit CAT in their chain show here how much of each task vector "
    "was projected out, tensor by tensor, and how strong the conflicts were."
)


def choose_first_runs(runs: Sequence[Run]) -> list[str]:
    """Ids of the runs shown if neither the link nor the session names any."""
    chosen = recipes.preset_runs(FIRST_PRESETS, runs)
    return [run.id for run in (chosen if len(chosen) > 1 else runs[:MAX_FIRST_RUNS])]


def pick_runs(runs: Sequence[Run]) -> list[Run]:
    """The picker of runs, first of CLIP runs; warns of runs in the link that this machine lacks."""
    by_id = {run.id: run for run in runs}
    chosen, missing = run_choice.resolve_runs(
        list(by_id), choose_first_runs([run for run in runs if not run.network] or runs)
    )
    if missing:
        run_picker.draw_missing_runs(missing, other_network_note=other_networks.OTHER_NETWORK_NOTE)
    run_picker.draw_runs_picker(by_id, chosen, "drifting")
    if not chosen and not missing:
        st.info("Choose at least one run above.")
    return [by_id[run_id] for run_id in chosen]


def draw_measured(
    runs: Sequence[Run],
    draw: Callable[[MeasuredRuns], None],
    draw_unmeasured: Callable[[Sequence[Run]], None] | None = None,
) -> None:
    """Draw the measured runs with the experts of the first run, and offer to measure the other runs with these experts.

    ``draw_unmeasured`` draws the runs if none is measured.
    """
    groups = run_picker.group_by_models(runs)
    key, reason = measurements.DRIFT, NOT_MEASURED
    if groups[0][0].network:
        key, reason = measurements.LAYER_DRIFT, other_networks.NOT_MEASURED
    results = [(run, measurements.find_measurement(key, run.id)) for run in groups[0]]
    pairs = [(run, measurement) for run, measurement in results if measurement is not None]
    if unmeasured := [run for run, measurement in results if measurement is None]:
        measure_button.draw_missing(key, unmeasured, reason, [measurement for _, measurement in pairs])
    if pairs:
        draw(pairs)
    elif draw_unmeasured:
        draw_unmeasured(unmeasured)
    run_picker.draw_other_groups(groups)


def draw_conflicts(chosen: Sequence[Run], runs: Sequence[Run]) -> None:
    """The runs that recorded the conflicts that CAT removed, or a link to such a merge."""
    for candidates in (chosen, runs):
        if recorded := [run for run in candidates if measurements.CONFLICTS in run.tables]:
            layer_by_layer.draw_removed(recorded)
            return
    page_parts.draw_empty(NO_CONFLICTS, "Merge with CAT", pages.MERGE, chain="cat;task_arithmetic")


def main() -> None:
    """The chosen view."""
    stored = page_data.stored_runs()
    runs = page_data.clip_runs(stored)
    view = page_parts.pick_button(
        "View", (DEPTH, LAYERS, RESTORING, SIMILARITY, CASES, EXEMPLARS, CAT), address.DRIFT_VIEW
    )
    if view == CASES:
        lot_cases.draw_cases()
    elif view == EXEMPLARS:
        lot_cases.draw_exemplars(stored)
    elif not (runs := runs + (other_networks.list_offered_runs(stored) if view == LAYERS else [])):
        page_parts.draw_no_runs()
        run_picker.draw_other_networks_note(stored, other_networks.CLIP_ONLY)
    elif chosen := pick_runs(runs):
        run_picker.draw_other_networks_note([run for run in stored if run not in runs], other_networks.CLIP_ONLY)
        if view in FIRST_QUANTITIES:
            if len(chosen) > 1:
                st.caption(f"The map shows {page_text.safe_text(chosen[0].name)}.")
            network_panel.draw_panel(chosen[0], FIRST_QUANTITIES[view])
        if view == DEPTH:
            draw_measured(chosen, lambda pairs: by_depth.draw_view(pairs, stored))
        elif view == LAYERS:
            draw_measured(chosen, layer_by_layer.draw_view, layer_by_layer.draw_unmeasured)
        elif view == RESTORING:
            restoring.draw_view(chosen)
        elif view == SIMILARITY:
            similarity.draw_view(chosen, stored)
        else:
            draw_conflicts(chosen, runs)


page_parts.draw_heading(
    "Drift", "How far merging moves each task's features from its own expert's, where, and what that costs."
)
main()
