"""Models & runs: which models can be merged and whether they fit; what was merged, to compare, take away or let go."""

from __future__ import annotations

import streamlit as st

from app import data, model_data, model_list, model_sets, parts, run_list, run_storage, state

MODELS, RUNS, STORAGE = "models", "runs", "storage and machine"


def models() -> None:
    """Everything about models."""
    typed = model_list.sources()
    found = model_data.shelf(typed)
    groups = model_data.groups(found)
    model_list.models(found, groups)
    model_sets.benchmarks(found)
    model_sets.chooser(found, groups)
    model_sets.saved()
    parts.link()
    if found.left:
        st.rerun()  # goes on looking into files; what is known by then is on the page already


parts.heading(
    "Models & runs",
    "Checkpoints of your own, whatever tool wrote them: what each is, which belong together, whether they fit. And the "
    "runs that were made here: compare them, take their models along, or let them go.",
)
VIEWS = {MODELS: models, RUNS: lambda: run_list.show(data.stored()), STORAGE: lambda: run_storage.show(data.stored())}
view = st.segmented_control("Show", VIEWS, default=MODELS, key=state.SHELF, bind=state.BIND, required=True)
VIEWS[view]()
