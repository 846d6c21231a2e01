"""The choices of a published experiment: the images, test sets, rows and experts to fetch and compute."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from app import page_text
from app.reading import listed_models as model_files
from app.reading.papers import experiments
from merging.base.errors import TaskError
from merging.images.prompt_sets import CLIP, HUB, WORDINGS

if TYPE_CHECKING:
    from merging.sharing.published.choice import Choice
    from merging.sharing.published.experiment_catalogue import Experiment

FOLDER = "a folder"
EXPERT_SOURCES = {"hub": "those on the Hub", "published": "the papers'", FOLDER: "in a folder of this machine"}
WORDING_LABELS = {CLIP: "as CLIP’s authors write them", HUB: "as the Hub writes them"}
ROWS_HELP = (
    "Each row is a recipe with the values that its paper states. It is computed twice if the result depends on whether "
    "query, key and value are one matrix or three. Rows that need training images fetch more."
)


def draw_choice(experiment: Experiment) -> Choice | None:
    """Draw the fields, which open with the last choice that ran; its ``images`` are None if it took all.

    Returns the choice; None if it is incomplete or impossible, which the page then explains.
    """
    from merging.sharing.published.choice import make_choice, needs_exemplars

    last_choice, key = experiments.last_choice(experiment) or make_choice(experiment), experiment.key
    rows = {row.key: row for row in experiment.rows}
    with st.grid(3, min_column_width=200):
        with st.container(gap="xsmall"):
            images = st.number_input(
                "Images of each test set", 1, 1_000_000, last_choice.images or 1000, step=100, key=f"pub_images_{key}",
                disabled=bool(st.session_state.get(f"pub_all_{key}", last_choice.images is None)),
                help="Sampled once, the same for every row. Use all images for a table that you quote.",
            )  # fmt: skip
            has_all_images = st.checkbox("All images", last_choice.images is None, key=f"pub_all_{key}")
        experts = _pick_experts(experiment, last_choice)
        outside, imagenet = _pick_outside(experiment, last_choice)
    tasks = {task.key: task.title for task in experiment.tasks}
    task_keys = st.multiselect(
        "Tasks with an expert", list(tasks), list(last_choice.tasks or tasks), format_func=tasks.__getitem__,
        key=f"pub_tasks_{key}", help="The papers' averages are over all of them.",
    )  # fmt: skip
    row_keys = st.multiselect(
        "Rows", list(rows), [row for row in last_choice.rows if row in rows],
        format_func=lambda row: _find_row_title(experiment, row), key=f"pub_rows_{key}", help=ROWS_HELP,
    )  # fmt: skip
    if not row_keys or not task_keys:
        st.caption("Choose at least one task and one row.")
        return None
    if not experts:
        st.caption("Type the folder of the experts.")
        return None
    exemplars, wording = 0, last_choice.wording
    with st.container(horizontal=True):
        if any(needs_exemplars(rows[row]) for row in row_keys):
            exemplars = st.number_input(
                "Training images of each task",
                1,
                100_000,
                last_choice.exemplars or 64,
                key=f"pub_exemplars_{key}",
                width=220,
            )
        if outside:
            wording = st.selectbox(
                "Class names out of domain", WORDINGS, WORDINGS.index(last_choice.wording),
                format_func=WORDING_LABELS.__getitem__, key=f"pub_wording_{key}", width=220,
            )  # fmt: skip
        seed = st.number_input("Sampling seed", 0, 1_000_000, last_choice.seed, key=f"pub_seed_{key}", width=160)
    try:
        return make_choice(
            experiment, images="all" if has_all_images else str(images), outside=outside, imagenet=imagenet,
            rows=row_keys, experts=experts, exemplars=exemplars, seed=seed, tasks=task_keys, wording=wording,
        )  # fmt: skip
    except TaskError as error:
        st.error(page_text.safe_text(error, 600), icon=":material/block:")
        return None


def _find_row_title(experiment: Experiment, row_key: str) -> str:
    from merging.recipes.presets import find_preset

    return find_preset(next(row for row in experiment.rows if row.key == row_key).preset).title


def _pick_experts(experiment: Experiment, last_choice: Choice) -> str:
    """Draw the picker of the experts; returns "hub", "published" or the path of a folder, empty until it is typed.

    Only this machine's user may type a path.
    """
    sources = [*experiment.models, *([FOLDER] if model_files.is_local() else [])]  # keys of ``EXPERT_SOURCES``
    default = last_choice.experts if last_choice.experts in sources else FOLDER
    with st.container(gap="xsmall"):
        source = st.selectbox(
            "Experts", sources, sources.index(default) if default in sources else 0,
            format_func=EXPERT_SOURCES.__getitem__, key=f"pub_experts_{experiment.key}",
        )  # fmt: skip
        if source != FOLDER:
            return source
        return st.text_input(
            "Folder of the papers' experts", "" if last_choice.experts in experiment.models else last_choice.experts,
            max_chars=1000, placeholder="/home/me/checkpoints/ViT-B-32", key=f"pub_folder_{experiment.key}",
        ).strip()  # fmt: skip


def _pick_outside(experiment: Experiment, last_choice: Choice) -> tuple[bool, bool]:
    """Draw the switches; returns whether test sets out of domain are scored, and whether ImageNet is one of them."""
    if not experiment.outside:
        return False, False
    with st.container(gap="xsmall"):
        outside = st.toggle(
            f"Also {len(experiment.outside) - len(experiment.off_by_default)} test sets out of domain",
            last_choice.outside, key=f"pub_outside_{experiment.key}",
        )  # fmt: skip
        offers_imagenet = "imagenet" in experiment.off_by_default and outside
        return outside, offers_imagenet and st.toggle(
            "And ImageNet", last_choice.imagenet, key=f"pub_imagenet_{experiment.key}"
        )
