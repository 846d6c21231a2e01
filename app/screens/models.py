"""Models & runs: which models can be merged and whether they fit; what was merged, to compare, take away or let go."""

from __future__ import annotations

import streamlit as st

from app.reading import data
from app.reading import models as model_files
from app.session import state
from app.views.models import benchmark_form, benchmarks, file_list, model_sets
from app.views.runs import run_list, storage
from app.widgets import page

MODELS, DATA, RUNS, STORAGE = "models", "data", "runs", "storage and machine"


def models() -> None:
    """Everything about models."""
    typed = file_list.sources()
    found = model_files.shelf(typed)
    groups = model_files.groups(found)
    file_list.models(found, groups)
    model_sets.folders(found)
    model_sets.chooser(found, groups)
    model_sets.saved()
    page.link()
    if found.left:
        st.rerun()  # goes on looking into files; what is known by then is on the page already


def benchmark() -> None:
    """What everything is measured on, and making such a benchmark."""
    items, folders = model_files.listed(benchmark_form.typed())
    benchmarks.chooser(folders)
    benchmark_form.form(items)
    page.link()


page.heading(
    "Models & runs",
    "Checkpoints of your own, whatever tool wrote them: what each is, which belong together, whether they fit. The "
    "images that they are measured on, yours or the bundled ones. And the runs that were made here: compare them, take "
    "their models along, or let them go.",
)
VIEWS = {
    MODELS: models,
    DATA: benchmark,
    RUNS: lambda: run_list.show(data.stored()),
    STORAGE: lambda: storage.show(data.store().runs()),
}
view = st.segmented_control("Show", VIEWS, default=MODELS, key=state.SHELF, bind=state.BIND, required=True)
VIEWS[view]()
