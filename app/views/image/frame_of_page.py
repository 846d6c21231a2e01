"""The Image page's frame: the picture, sentences about it, the view, and polling until all tables are computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import streamlit as st

from app import page_text
from app.reading import expert_names, previews
from app.session import address
from app.session.click_errors import guarded_fragment
from app.views.image import (
    answers_by_depth,
    attention,
    image_picker,
    neighbors,
    patch_drift,
    restored_tokens,
    study_tables,
    uploaded_picture,
)
from app.views.image.data_set_view import draw_view
from app.views.image.study_tables import ImageStudy, ShownImage, StudyTables
from app.widgets import found_images
from app.widgets.jobs import refused_action
from merging.base import modes
from merging.base.modes import Mode, VisitorAction
from merging.study.previews.preview_process import TableName
from viz.figure_text import clean_text

ANSWER, ATTENTION, DRIFT, RESTORE, OCCLUDE, NEIGHBORS, DATA_SETS = (
    "answer by depth",
    "where it looks",
    "drift by patch",
    "restore tokens",
    "occlude patches",
    "neighbors",
    "whole data sets",
)
POLL = 0.4  # seconds between two polls while tables are computed
WAITING = "Reading the image. The first answer of a run whose weights must be merged again takes a few seconds."

PLAIN_VIEWS: Mapping[str, tuple[Callable[[ImageStudy], list[TableName]], Callable[[ImageStudy, StudyTables], None]]] = {
    ANSWER: (answers_by_depth.needed_tables, answers_by_depth.draw_answers),
    DRIFT: (patch_drift.needed_tables, patch_drift.draw_drift),
    RESTORE: (restored_tokens.needed_tables, restored_tokens.draw_restored),
    OCCLUDE: (restored_tokens.needed_occluded_tables, restored_tokens.draw_occluded),
    NEIGHBORS: (neighbors.needed_tables, neighbors.draw_neighbors),
}


class View(NamedTuple):
    """A view of the page: the tables that it needs, and the function that draws it from the computed ones."""

    wanted: list[TableName]
    draw: Callable[[StudyTables], None]


def pick_view(study: ImageStudy) -> View:
    """The picker of the view; returns the chosen view, after its own pickers."""
    chosen = st.segmented_control(
        "View", (ANSWER, ATTENTION, *list(PLAIN_VIEWS)[1:], DATA_SETS), default=ANSWER, key=address.IMAGE_VIEW,
        bind=address.BIND,
        required=True,
    )  # fmt: skip
    if chosen == ATTENTION:
        part = attention.pick_attention()
        return View(attention.needed_tables(study, part), lambda tables: attention.draw_attention(study, tables, part))
    if chosen == DATA_SETS:
        return View([], lambda tables: draw_view(study.runs))
    wanted, drawn = PLAIN_VIEWS[chosen]
    return View(wanted(study), lambda tables: drawn(study, tables))


def page_tables(study: ImageStudy, wanted: list[TableName]) -> list[TableName]:
    """All tables of the page in order: short sentences, the view's tables, then sentences that include restoring."""
    models = study.subjects or study.models[:1]
    first, last = ([TableName(table, model.key, model.reference) for model in models] for table in ("says", "sentence"))
    return study_tables.order_tables([*first, *wanted, *last])


def draw_image(image: ShownImage) -> None:
    """Draw the image as the models see it and its class; for the user's own picture, the original beside it."""
    uploaded = uploaded_picture.current_picture()
    alt = f"An image of {clean_text(image.truth, 60)}" if image.truth else "Your picture as the models see it"
    with st.container(horizontal=True, gap="small"):
        st.image(image.picture, width=120, alt=alt)
        if uploaded is not None:
            st.image(uploaded.original, width=120, alt="Your original picture")
    if uploaded is not None:
        st.caption("Left: as the models see it. Right: the original. It has no label.")
        st.button(
            "Close your picture", on_click=uploaded_picture.forget_picture, type="tertiary", icon=":material/close:"
        )
        return
    task = expert_names.expert_name(image.name.partition(":")[0])
    st.caption(f"**{page_text.safe_text(image.truth, 60)}**, {page_text.safe_text(task, 60)}")


def draw_sentences(tables: StudyTables) -> None:
    """Draw a sentence about the image for each model, and the tables that cannot be computed."""
    for words in tables.sentences().values():
        st.markdown(page_text.safe_text(words, 600))
    for problem, title in tables.problems.items():
        st.caption(f":material/info: {page_text.safe_text(title, 60)}: {page_text.safe_text(problem, 400)}")


def draw_page(study: ImageStudy, head: st.delta_generator.DeltaGenerator, chosen: View) -> None:
    """Draw the sentences in ``head`` and the view, and poll while tables are computed."""
    needed = page_tables(study, chosen.wanted)
    tables, running, error = study_tables.read_tables(study, needed)
    with head:
        draw_sentences(tables)
        if running:
            st.caption(f":material/hourglass_top: {WAITING}")
        if refused_action.draw_refusal(VisitorAction.PREVIEW):
            pass  # stored tables are drawn nevertheless
        elif error:
            st.error(page_text.safe_text(error, 600), icon=":material/error:")
            st.button(
                "Try again",
                on_click=previews.request_preview,
                args=(study_tables.tables_request(study, needed), study_tables.REQUEST_KEY),
            )
        if running:
            guarded_fragment(_poll, run_every=POLL)(study, needed, len(tables.known) + len(tables.problems))
    chosen.draw(tables)


def _poll(study: ImageStudy, needed: list[TableName], shown: int) -> None:
    """Draw the page again once more tables are computed than it shows, or none is in progress."""
    tables, running, _ = study_tables.read_tables(study, needed)
    if not running or len(tables.known) + len(tables.problems) > shown:
        st.rerun()


def draw_image_pickers(image: ShownImage) -> None:
    """Draw the pickers of an image, and a popover that uploads the user's own picture."""
    with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
        if uploaded_picture.current_picture() is None:
            image_picker.draw_picker(image)
        if modes.server_mode() == Mode.FULL:
            with st.popover("Your picture", icon=":material/upload:"):
                uploaded_picture.draw_upload()
    if uploaded_picture.current_picture() is None:
        image_picker.draw_name(image)
        found_images.draw_walk(image.name)
