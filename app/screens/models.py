"""Models & runs: which models can be merged and whether they fit; what was merged, to compare, take away or let go."""

from __future__ import annotations

import streamlit as st

from app import (
    data,
    model_benchmarks,
    model_build,
    model_data,
    model_list,
    model_sets,
    parts,
    run_list,
    run_storage,
    state,
)

MODELS, DATA, RUNS, STORAGE = "models", "data", "runs", "storage and machine"


def models() -> None:
    """Everything about models."""
    typed = model_list.sources()
    found = model_data.shelf(typed)
    groups = model_data.groups(found)
    model_list.models(found, groups)
    model_sets.folders(found)
    model_sets.chooser(found, groups)
    model_sets.saved()
    parts.link()
    if found.left:
        st.rerun()  # goes on looking into files; what is known by then is on the page already


def benchmark() -> None:
    """What everything is measured on, and making such a benchmark."""
    items, folders = model_data.listed(model_build.typed())
    model_benchmarks.chooser(folders)
    model_build.form(items)
    parts.link()


parts.heading(
    "Models & runs",
    "Checkpoints of your own, whatever tool wrote them: what each is, which belong together, whether they fit. The "
    "images that they are measured on, yours or the bundled ones. And the runs that were made here: compare them, take "
    "their models along, or let them go.",
)
VIEWS = {
    MODELS: models,
    DATA: benchmark,
    RUNS: lambda: run_list.show(data.stored()),
    STORAGE: lambda: run_storage.show(data.store().runs()),
}
view = st.segmented_control("Show", VIEWS, default=MODELS, key=state.SHELF, bind=state.BIND, required=True)
VIEWS[view]()
