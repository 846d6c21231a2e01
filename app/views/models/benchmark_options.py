"""The options of a new benchmark as a whole: its name, how many images of which kind, the text tower."""

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

FIRST = "mine"  # the proposed name
WHOLE_HELP = "Then no images are left to choose values on, unless a data set has a validation part."
BALANCED_HELP = "Draws equally from all classes, as far as they have images."
BY_REFERENCE_HELP = (
    "Images stay in the files of the data sets, which must stay where they are, and are decoded when they are needed. "
    "Otherwise each is stored at the size that the models take: 150 kB at 224 × 224 pixels."
)


def draw_options(
    models: ModelSet, tasks: Mapping[str, Any], listed: Sequence[CatalogEntry]
) -> tuple[str, dict[str, Any]]:
    """The benchmark's name, and its description as plain data."""
    from merging.sharing.catalog.data_set_catalog import choose_task_key

    with st.grid(3, min_column_width=170):
        free = choose_task_key(
            FIRST, [path.name for path in benchmark_folders.list_built(page_data.store().root).values()]
        )
        name = st.text_input("Name of the benchmark", free, max_chars=40, key="build_name").strip()
        images = st.number_input(
            "Images of each test set, at most" if st.session_state.get("build_whole") else
            "Images in each half, at most", 0, 1_000_000, 250, key="build_images",
            help="Of each test set: one half to choose values on, one to report on. 0 takes all.",
        )  # fmt: skip
        exemplars = st.number_input(
            "Training images, at most", 0, 1_000_000, 96, key="build_exemplars",
            help="Of each data set, for methods that use images. 0 takes all.",
        )  # fmt: skip
        seed = st.number_input("Seed of the draw", 0, 1_000_000, 0, key="build_seed")
        whole = [models.pretrained, *(item.reference for item in listed if item.reference != models.pretrained)]
        places_of = {item.reference: item.listed_path for item in listed}
        tower = st.selectbox(
            "Text tower", whole, format_func=lambda ref: clean_text(places_of.get(ref, ref), 80)
            if ref != models.pretrained else "that of the pretrained model", key=f"build_text_{models.id}",
            help="Heads are built from class names by the text tower of the same CLIP model.",
        )  # fmt: skip
    plain = {"pretrained": models.pretrained, "images": images, "exemplars": exemplars, "seed": seed}
    plain |= {"text": tower} if tower != models.pretrained else {}
    return name, {**plain, **_draw_switches(tasks, limited=images > 0), "tasks": dict(tasks)}


def _draw_switches(tasks: Mapping[str, Any], *, limited: bool) -> dict[str, bool]:
    """What is switched on, of what applies: a draw is balanced only if not all images are taken."""
    switches = {}
    with st.container(horizontal=True, gap="medium"):
        switches["whole"] = st.toggle("Report on whole test sets", key="build_whole", help=WHOLE_HELP)
        if limited:
            switches["balanced"] = st.toggle("Equally many of every class", key="build_balanced", help=BALANCED_HELP)
        if tasks and all(_can_refer(task) for task in tasks.values()):
            switches["by_reference"] = st.toggle(
                "Leave images in their files", key="build_by_reference", help=BY_REFERENCE_HELP
            )
    return {name: True for name, on in switches.items() if on}


def _can_refer(task: Mapping[str, Any]) -> bool:
    return benchmark_plan.inspect_data_set(task["images"], task.get("configuration")).referable
