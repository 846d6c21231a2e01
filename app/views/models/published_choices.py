"""What of a published experiment is fetched and computed: images, test sets, rows, experts."""

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
    "Each is a recipe with the values that its paper states, computed twice where it matters whether query, key and "
    "value are one matrix or three. Rows that need training images fetch more."
)


def draw_choice(chosen: Experiment) -> Choice | None:
    """The fields, filled with what ran here last; None, with the reason on the page, if they make no choice."""
    from merging.sharing.published.choice import make_choice, needs_exemplars

    known, key = experiments.last_choice(chosen) or make_choice(chosen), chosen.key
    rows = {row.key: row for row in chosen.rows}
    with st.grid(3, min_column_width=200):
        with st.container(gap="xsmall"):
            images = st.number_input(
                "Images of each test set", 1, 1_000_000, known.images or 1000, step=100, key=f"pub_images_{key}",
                disabled=bool(st.session_state.get(f"pub_all_{key}", known.images is None)),
                help="Drawn once, the same for every row. A table that is quoted needs all.",
            )  # fmt: skip
            whole = st.checkbox("All images", known.images is None, key=f"pub_all_{key}")
        experts = _experts(chosen, known)
        outside, imagenet = _outside(chosen, known)
    tasks = {one.key: one.title for one in chosen.tasks}
    own = st.multiselect(
        "Tasks with an expert", list(tasks), list(known.tasks or tasks), format_func=tasks.__getitem__,
        key=f"pub_tasks_{key}", help="The papers' averages are over all of them.",
    )  # fmt: skip
    picked = st.multiselect(
        "Rows", list(rows), [row for row in known.rows if row in rows], format_func=lambda row: _title(chosen, row),
        key=f"pub_rows_{key}", help=ROWS_HELP,
    )  # fmt: skip
    if not picked or not own:
        st.caption("Choose at least one task and one row.")
        return None
    if not experts:
        st.caption("Type the folder of the experts.")
        return None
    exemplars, wording = 0, known.wording
    with st.container(horizontal=True):
        if any(needs_exemplars(rows[row]) for row in picked):
            exemplars = st.number_input(
                "Training images of each task", 1, 100_000, known.exemplars or 64, key=f"pub_exemplars_{key}", width=220
            )
        if outside:
            wording = st.selectbox(
                "Class names out of domain", WORDINGS, WORDINGS.index(known.wording), format_func=WORDS.__getitem__,
                key=f"pub_wording_{key}", width=220,
            )  # fmt: skip
        seed = st.number_input("Seed of the draw", 0, 1_000_000, known.seed, key=f"pub_seed_{key}", width=160)
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


def _experts(chosen: Experiment, known: Choice) -> str:
    """Whose experts are merged: HUB, PUBLISHED or the path of a folder, which only this machine's user may type.

    It is empty as long as no folder is typed.
    """
    offered = [*chosen.models, *([FOLDER] if model_files.is_local() else [])]
    first = known.experts if known.experts in offered else FOLDER
    with st.container(gap="xsmall"):
        picked = st.selectbox(
            "Experts", offered, offered.index(first) if first in offered else 0, format_func=EXPERT_SOURCES.__getitem__,
            key=f"pub_experts_{chosen.key}",
        )  # fmt: skip
        if picked != FOLDER:
            return picked
        return st.text_input(
            "Folder of the papers' experts", "" if known.experts in chosen.models else known.experts, max_chars=1000,
            placeholder="/home/me/checkpoints/ViT-B-32", key=f"pub_folder_{chosen.key}",
        ).strip()  # fmt: skip


def _outside(chosen: Experiment, known: Choice) -> tuple[bool, bool]:
    """Whether test sets out of domain are scored, and ImageNet among them."""
    if not chosen.outside:
        return False, False
    with st.container(gap="xsmall"):
        outside = st.toggle(
            f"Also {len(chosen.outside) - len(chosen.off_by_default)} test sets out of domain", known.outside,
            key=f"pub_outside_{chosen.key}",
        )  # fmt: skip
        large = "imagenet" in chosen.off_by_default and outside
        return outside, large and st.toggle("And ImageNet", known.imagenet, key=f"pub_imagenet_{chosen.key}")
