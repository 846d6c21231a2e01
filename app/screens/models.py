"""Models & runs: models to merge and whether they fit, benchmarks, and runs to compare, export or delete."""

from __future__ import annotations

import streamlit as st

from app.reading import data
from app.reading import models as model_files
from app.session import address
from app.views.models import benchmark_form, benchmarks, file_list, model_sets, published
from app.views.runs import run_list, storage
from app.widgets import page

MODELS, DATA, RUNS, STORAGE = "models", "data", "runs", "storage and machine"
OWN, PUBLISHED = "from your images", published.PUBLISHED


def models() -> None:
    """The models, and the form that makes a set of them."""
    typed = file_list.sources()
    shelf = model_files.shelf(typed)
    groups = model_files.groups(shelf)
    file_list.models(shelf, groups)
    model_sets.folders(shelf)
    model_sets.chooser(shelf, groups)
    model_sets.saved()
    page.link()
    if shelf.left:
        st.rerun()  # inspects more files; the page already shows the others


def benchmark() -> None:
    """The current benchmark, and the form that makes one."""
    items, folders = model_files.listed(benchmark_form.typed())
    benchmarks.chooser(folders)
    benchmark_form.make_again()
    source = st.segmented_control(
        "Another benchmark", (OWN, PUBLISHED), default=OWN, key=address.BENCHMARK_SOURCE, bind=address.BIND,
        required=True,
    )  # fmt: skip
    if source == PUBLISHED:
        published.show()
    else:
        benchmark_form.form(items)
    page.link()


page.heading(
    "Models & runs",
    "Your checkpoints, from any tool: what each is, which belong together, whether they fit. The images they are "
    "measured on, yours or the bundled ones. And the runs made here: compare, export or delete them.",
)
VIEWS = {
    MODELS: models,
    DATA: benchmark,
    RUNS: lambda: run_list.show(data.stored()),
    STORAGE: lambda: storage.show(data.store().runs()),
}
view = st.segmented_control("Show", VIEWS, default=MODELS, key=address.MODELS_VIEW, bind=address.BIND, required=True)
VIEWS[view]()
