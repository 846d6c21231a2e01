"""Options for a whole new benchmark: its name, the numbers of images, the seed and the text tower."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import streamlit as st

from app.reading import page_data
from app.views.models import benchmark_plan
from merging.images.benchmarks import benchmark_folders
from viz.figure_text import clean_text

if TYPE_CHECKING:
    from merging.sharing.catalog.model_listing import CatalogEntry
    from merging.sharing.catalog.model_set_store import ModelSet

DEFAULT_NAME = "mine"  # the proposed name
WHOLE_HELP = "No images then remain to choose values on, unless a data set has a validation part."
BALANCED_HELP = "Samples equally many images of every class, as far as the class has them."
BY_REFERENCE_HELP = (
    "Images stay in the files of the data sets and are decoded when a page needs them, so do not move these files. "
    "Otherwise the benchmark stores each image at the models' input size: 150 kB at 224 × 224 pixels."
)


def draw_options(
    models: ModelSet, tasks: Mapping[str, Any], model_entries: Sequence[CatalogEntry]
) -> tuple[str, dict[str, Any]]:
    """Draw the options; returns the benchmark's name and its description as plain data."""
    from merging.sharing.catalog.data_set_catalog import choose_task_key

    with st.grid(3, min_column_width=170):
        free_name = choose_task_key(
            DEFAULT_NAME, [path.name for path in benchmark_folders.list_built(page_data.store().root).values()]
        )
        name = st.text_input("Name of the benchmark", free_name, max_chars=40, key="build_name").strip()
        images = st.number_input(
            "Images of each test set, at most" if st.session_state.get("build_whole") else
            "Images in each half, at most", 0, 1_000_000, 250, key="build_images",
            help="Of each test set: one half to choose values on, one to report on. 0 takes all.",
        )  # fmt: skip
        exemplars = st.number_input(
            "Training images, at most", 0, 1_000_000, 96, key="build_exemplars",
            help="Of each data set, for methods that use images. 0 takes all.",
        )  # fmt: skip
        seed = st.number_input("Sampling seed", 0, 1_000_000, 0, key="build_seed")
        text_towers = [
            models.pretrained,
            *(item.reference for item in model_entries if item.reference != models.pretrained),
        ]
        listed_paths = {item.reference: item.listed_path for item in model_entries}
        tower = st.selectbox(
            "Text tower", text_towers,
            format_func=lambda reference: clean_text(listed_paths.get(reference, reference), 80)
            if reference != models.pretrained else "that of the pretrained model", key=f"build_text_{models.id}",
            help="Heads are built from class names by the text tower of the same CLIP model.",
        )  # fmt: skip
    description = {"pretrained": models.pretrained, "images": images, "exemplars": exemplars, "seed": seed}
    description |= {"text": tower} if tower != models.pretrained else {}
    return name, {**description, **_draw_switches(tasks, limited=images > 0), "tasks": dict(tasks)}


def _draw_switches(tasks: Mapping[str, Any], *, limited: bool) -> dict[str, bool]:
    """Draw the switches; returns those that are on. A balanced sample is offered only if not all images are taken."""
    switches = {}
    with st.container(horizontal=True, gap="medium"):
        switches["whole"] = st.toggle("Report on whole test sets", key="build_whole", help=WHOLE_HELP)
        if limited:
            switches["balanced"] = st.toggle("Equally many of every class", key="build_balanced", help=BALANCED_HELP)
        data_sets = [
            benchmark_plan.inspect_data_set(task["images"], task.get("configuration")) for task in tasks.values()
        ]
        if data_sets and all(data_set.referable for data_set in data_sets):
            switches["by_reference"] = st.toggle(
                "Leave images in their files", key="build_by_reference", help=BY_REFERENCE_HELP
            )
    return {name: True for name, is_on in switches.items() if is_on}
