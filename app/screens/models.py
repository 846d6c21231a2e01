"""Models & runs: models to merge and whether they fit, benchmarks, and runs to compare, export or delete."""

from __future__ import annotations

import streamlit as st

from app.reading import listed_models as model_files
from app.reading import page_data
from app.session import address
from app.views.models import benchmark_form, benchmark_picker, model_list, model_sets, published_experiments
from app.views.runs import disk_usage, packs, run_list
from app.widgets import page_parts

MODELS, DATA, RUNS, STORAGE = "models", "data", "runs", "storage and machine"
OWN_IMAGES, PUBLISHED = "from your images", published_experiments.PUBLISHED


def draw_models() -> None:
    """The models, and the form that makes a set of them."""
    typed = model_list.draw_sources()
    files = model_files.list_models(typed)
    groups = model_files.group_models(files)
    model_list.draw_models(files, groups)
    model_sets.draw_folders(files)
    model_sets.draw_form(files, groups)
    model_sets.draw_saved_sets()
    page_parts.draw_link()
    if files.not_inspected:
        st.rerun()  # inspects more files; the page already shows the inspected ones


def draw_benchmark() -> None:
    """The current benchmark, and the form that makes one."""
    items, folders = model_files.list_names(benchmark_form.read_typed_path())
    benchmark_picker.draw_chooser(folders)
    benchmark_form.draw_make_again()
    source = page_parts.pick_button("Another benchmark", (OWN_IMAGES, PUBLISHED), address.BENCHMARK_SOURCE)
    if source == PUBLISHED:
        published_experiments.draw_experiments()
    else:
        benchmark_form.draw_form(items)
    page_parts.draw_link()


def draw_runs() -> None:
    """The opened packs, and the runs with their actions."""
    packs.draw_opened()
    run_list.draw_runs(page_data.stored_runs())


page_parts.draw_heading(
    "Models & runs",
    "Your checkpoints, from any tool: what each one is, which belong together, whether they fit. The images they are "
    "measured on, yours or the bundled ones. And your runs: compare, export or delete them.",
)
VIEWS = {
    MODELS: draw_models,
    DATA: draw_benchmark,
    RUNS: draw_runs,
    STORAGE: lambda: disk_usage.draw_usage(page_data.store().list_runs()),
}
VIEWS[page_parts.pick_button("Show", VIEWS, address.MODELS_VIEW)]()
