"""Learning: the coefficients, masks and modules that merges learn, their gain and cost, and the routing of images."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import streamlit as st

from app import page_text
from app.reading import page_data
from app.session import address, pages, run_choice
from app.views.learning import (
    coefficients,
    learned_masks,
    learned_storage,
    live_learning,
    losses,
    start_runs,
    task_modules,
)
from app.views.learning import learning_tables as learning
from app.widgets import page_parts, run_picker
from app.widgets.panels import network_panel
from merging.study.runs.run import Run

COEFFICIENTS, LOSSES, MODULES, MASKS, STORAGE = "coefficients", "loss and gain", "modules", "masks", "storage"
VIEW_TABLES = {  # view -> tables, at least one of which a run must have
    COEFFICIENTS: {learning.STEPS},
    LOSSES: {learning.TRACE, learning.SHIFT},
    MODULES: {learning.SHIFT, learning.ROUTING, learning.MODULE_PARTS},
    MASKS: {learning.LOCALIZATION},
    STORAGE: set(learning.LEARNED_TABLES),
}
NO_LEARNED_RUN = (
    "No run has learned anything yet. A merge that learns its coefficients from unlabeled images shows here the "
    "coefficient of every layer, while it learns and afterwards."
)
LACKS_VIEW_NOTE = "This run has no {}. It has: {}."
LEARNED_NOTHING_NOTE = "This run learned nothing: its method needs no learning."


def open_view(name: str) -> None:
    """Callback: show another view."""
    st.session_state[address.LEARNING_VIEW] = name


def list_ready_runs(learned: Sequence[Run]) -> list[Run]:
    """The runs with tables for the chosen view, those of the library first; all runs if no view is chosen."""
    view = st.session_state.get(address.LEARNING_VIEW) or st.query_params.get(address.LEARNING_VIEW, "")
    tables = VIEW_TABLES.get(view, set(learning.LEARNED_TABLES))
    candidates = [run for run in learned if tables & learning.list_table_names(run)] or list(learned)
    return sorted(candidates, key=lambda run: not page_data.library_title(run))


def main() -> None:
    """The jobs that learn, and the chosen view of a run."""
    live_learning.draw_live()
    stored = page_data.stored_runs()
    runs = page_data.list_merges(stored)
    learned = [run for run in runs if learning.has_learned(run)]
    if not learned:
        key = start_runs.find_learning_method()
        page_parts.draw_empty(
            NO_LEARNED_RUN, "Merge with a method that learns", pages.MERGE, **({"chain": key} if key else {})
        )
        return
    not_learned = [run for run in runs if run not in learned]
    ready = list_ready_runs(learned)  # if no run is chosen, one of these is shown
    picked = run_picker.pick_run([*learned, *not_learned], ready[0], ready=ready)
    if picked is None:
        return
    run, fresh = picked  # fresh: it was picked just now
    if not learning.has_learned(run):
        st.info(LEARNED_NOTHING_NOTE)
        st.button(
            f"Show {page_text.run_label(ready[0])}", on_click=run_choice.pick_run, args=(ready[0].id,), type="primary"
        )
        return
    available_views = [name for name, tables in VIEW_TABLES.items() if tables & learning.list_table_names(run)]
    if fresh or address.LEARNING_VIEW not in {*st.session_state, *st.query_params}:
        st.session_state[address.LEARNING_VIEW] = available_views[0]
    chosen = page_parts.pick_button("View", VIEW_TABLES, address.LEARNING_VIEW)
    network_panel.draw_panel(run, ("coefficient", "moved"))
    draw_view(run, chosen, available_views, [run for run in learned if page_data.belongs_to_benchmark(run)], stored)


def draw_view(
    run: Run, view: str, available_views: Sequence[str], learned: Sequence[Run], stored: Sequence[Run]
) -> None:
    """One view of a run, or a message with the views that it has."""
    if view not in available_views:
        st.info(LACKS_VIEW_NOTE.format(view, page_text.join_words(available_views)))
        for name in available_views:
            st.button(name.capitalize(), key=f"open_{name}", on_click=open_view, args=(name,), type="tertiary")
        return
    comparable = learning.find_comparable_runs(run, learned)
    views: dict[str, Callable[[], None]] = {
        COEFFICIENTS: lambda: coefficients.draw_view(run, comparable),
        LOSSES: lambda: losses.draw_view(run, stored),
        MODULES: lambda: task_modules.draw_view(run),
        MASKS: lambda: learned_masks.draw_view(run),
        STORAGE: lambda: learned_storage.draw_view(run, comparable),
    }
    views[view]()


page_parts.draw_heading(
    "Learning", "What a merge learned from images: its coefficients, masks and modules, with their gain and their cost."
)
main()
