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
WORDS = {CLIP: "as CLIP’s authors write them", HUB: "as the Hub writes them"}
ROWS_HELP = (
    "Each row is a recipe with the values that its paper states. It is computed twice if the result depends on whether "
    "query, key and value are one matrix or three. Rows that need training images fetch more."
)


def draw_choice(chosen: Experiment) -> Choice | None:
    """The fields, filled with the last choice that ran; None, with the reason on the page, if they are incomplete."""
    from merging.sharing.published.choice import make_choice, needs_exemplars

    last, key = experiments.last_choice(chosen) or make_choice(chosen), chosen.key
    rows = {row.key: row for row in chosen.rows}
    with st.grid(3, min_column_width=200):
        with st.container(gap="xsmall"):
            images = st.number_input(
                "Images of each test set", 1, 1_000_000, last.images or 1000, step=100, key=f"pub_images_{key}",
                disabled=bool(st.session_state.get(f"pub_all_{key}", last.images is None)),
                help="Sampled once, the same for every row. Use all images for a table that you quote.",
            )  # fmt: skip
            whole = st.checkbox("All images", last.images is None, key=f"pub_all_{key}")
        experts = _experts(chosen, last)
        outside, imagenet = _outside(chosen, last)
    tasks = {task.key: task.title for task in chosen.tasks}
    own = st.multiselect(
        "Tasks with an expert", list(tasks), list(last.tasks or tasks), format_func=tasks.__getitem__,
        key=f"pub_tasks_{key}", help="The papers' averages are over all of them.",
    )  # fmt: skip
    picked = st.multiselect(
        "Rows", list(rows), [row for row in last.rows if row in rows], format_func=lambda row: _title(chosen, row),
        key=f"pub_rows_{key}", help=ROWS_HELP,
    )  # fmt: skip
    if not picked or not own:
        st.caption("Choose at least one task and one row.")
        return None
    if not experts:
        st.caption("Type the folder of the experts.")
        return None
    exemplars, wording = 0, last.wording
    with st.container(horizontal=True):
        if any(needs_exemplars(rows[row]) for row in picked):
            exemplars = st.number_input(
                "Training images of each task", 1, 100_000, last.exemplars or 64, key=f"pub_exemplars_{key}", width=220
            )
        if outside:
            wording = st.selectbox(
                "Class names out of domain", WORDINGS, WORDINGS.index(last.wording), format_func=WORDS.__getitem__,
                key=f"pub_wording_{key}", width=220,
            )  # fmt: skip
        seed = st.number_input("Sampling seed", 0, 1_000_000, last.seed, key=f"pub_seed_{key}", width=160)
    try:
        return make_choice(
            chosen, images="all" if whole else str(images), outside=outside, imagenet=imagenet, rows=picked,
            experts=experts, exemplars=exemplars, seed=seed, tasks=own, wording=wording,
        )  # fmt: skip
    except TaskError as error:
        st.error(page_text.safe_text(error, 600), icon=":material/block:")
        return None


def _title(chosen: Experiment, key: str) -> str:
    from merging.recipes.presets import find_preset

    return find_preset(next(row for row in chosen.rows if row.key == key).preset).title


def _experts(chosen: Experiment, last: Choice) -> str:
    """The source of the experts: HUB, PUBLISHED or the path of a folder, which only this machine's user may type.

    The path is empty until a folder is typed.
    """
    offered = [*chosen.models, *([FOLDER] if model_files.is_local() else [])]
    first = last.experts if last.experts in offered else FOLDER
    with st.container(gap="xsmall"):
        picked = st.selectbox(
            "Experts", offered, offered.index(first) if first in offered else 0, format_func=EXPERT_SOURCES.__getitem__,
            key=f"pub_experts_{chosen.key}",
        )  # fmt: skip
        if picked != FOLDER:
            return picked
        return st.text_input(
            "Folder of the papers' experts", "" if last.experts in chosen.models else last.experts, max_chars=1000,
            placeholder="/home/me/checkpoints/ViT-B-32", key=f"pub_folder_{chosen.key}",
        ).strip()  # fmt: skip


def _outside(chosen: Experiment, last: Choice) -> tuple[bool, bool]:
    """Whether test sets out of domain are scored, and whether ImageNet is one of them."""
    if not chosen.outside:
        return False, False
    with st.container(gap="xsmall"):
        outside = st.toggle(
            f"Also {len(chosen.outside) - len(chosen.off_by_default)} test sets out of domain", last.outside,
            key=f"pub_outside_{chosen.key}",
        )  # fmt: skip
        large = "imagenet" in chosen.off_by_default and outside
        return outside, large and st.toggle("And ImageNet", last.imagenet, key=f"pub_imagenet_{chosen.key}")
