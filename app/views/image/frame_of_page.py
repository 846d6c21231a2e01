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

ANSWER_VIEW = "answer by depth"
ATTENTION_VIEW = "where it looks"
DRIFT_VIEW = "drift by patch"
RESTORE_VIEW = "restore tokens"
OCCLUDE_VIEW = "occlude patches"
NEIGHBORS_VIEW = "neighbors"
DATA_SETS_VIEW = "whole data sets"
POLL_SECONDS = 0.4  # seconds between two polls while tables are computed
WAITING_NOTE = "Reading the image. The first answer of a run whose weights must be merged again takes a few seconds."

STUDY_VIEWS: Mapping[str, tuple[Callable[[ImageStudy], list[TableName]], Callable[[ImageStudy, StudyTables], None]]] = {
    ANSWER_VIEW: (answers_by_depth.list_needed_tables, answers_by_depth.draw_answers),
    DRIFT_VIEW: (patch_drift.list_needed_tables, patch_drift.draw_drift),
    RESTORE_VIEW: (restored_tokens.list_needed_tables, restored_tokens.draw_restored),
    OCCLUDE_VIEW: (restored_tokens.list_occluded_tables, restored_tokens.draw_occluded),
    NEIGHBORS_VIEW: (neighbors.list_needed_tables, neighbors.draw_neighbors),
}


class View(NamedTuple):
    """A view of the page: the names of the tables that it needs, and the function that draws it from those computed."""

    table_names: list[TableName]
    draw: Callable[[StudyTables], None]


def pick_view(study: ImageStudy) -> View:
    """Draw the picker of the view and the pickers of that view; returns the view."""
    view = st.segmented_control(
        "View", (ANSWER_VIEW, ATTENTION_VIEW, *list(STUDY_VIEWS)[1:], DATA_SETS_VIEW), default=ANSWER_VIEW,
        key=address.IMAGE_VIEW, bind=address.BIND,
        required=True,
    )  # fmt: skip
    if view == ATTENTION_VIEW:
        attention_view = attention.pick_attention()
        return View(
            attention.list_needed_tables(study, attention_view),
            lambda tables: attention.draw_attention(study, tables, attention_view),
        )
    if view == DATA_SETS_VIEW:
        return View([], lambda tables: draw_view(study.runs))
    list_tables, draw = STUDY_VIEWS[view]
    return View(list_tables(study), lambda tables: draw(study, tables))


def list_page_tables(study: ImageStudy, view_tables: list[TableName]) -> list[TableName]:
    """The names of all tables of the page in order: short sentences, the view's tables, then full sentences.

    Full sentences state the effect of restoring tokens, too, which takes longer to compute.
    """
    models = study.subjects or study.models[:1]
    short_sentences, full_sentences = (
        [TableName(table, model.key, model.reference) for model in models]
        for table in ("quick_summary", "full_summary")
    )
    return study_tables.order_slow_last([*short_sentences, *view_tables, *full_sentences])


def draw_image(image: ShownImage) -> None:
    """Draw the image as the models see it and its class; for the user's own picture, the original beside it."""
    uploaded = uploaded_picture.find_picture()
    alt = f"An image of {clean_text(image.true_class, 60)}" if image.true_class else "Your picture as the models see it"
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
    st.caption(f"**{page_text.safe_text(image.true_class, 60)}**, {page_text.safe_text(task, 60)}")


def draw_sentences(tables: StudyTables) -> None:
    """Draw a sentence about the image for each model, and the tables that cannot be computed."""
    for sentence in tables.sentences().values():
        st.markdown(page_text.safe_text(sentence, 600))
    for problem, title in tables.problems.items():
        st.caption(f":material/info: {page_text.safe_text(title, 60)}: {page_text.safe_text(problem, 400)}")


def draw_page(study: ImageStudy, sentence_slot: st.delta_generator.DeltaGenerator, view: View) -> None:
    """Draw the sentences in ``sentence_slot`` and the view, and poll while tables are computed."""
    needed = list_page_tables(study, view.table_names)
    tables, running, error = study_tables.read_tables(study, needed)
    with sentence_slot:
        draw_sentences(tables)
        if running:
            st.caption(f":material/hourglass_top: {WAITING_NOTE}")
        if refused_action.draw_refusal(VisitorAction.PREVIEW):
            pass  # stored tables are drawn nevertheless
        elif error:
            st.error(page_text.safe_text(error, 600), icon=":material/error:")
            st.button(
                "Try again",
                on_click=previews.request_preview,
                args=(study_tables.make_request(study, needed), study_tables.REQUEST_KEY),
            )
        if running:
            guarded_fragment(_poll, run_every=POLL_SECONDS)(study, needed, len(tables.known) + len(tables.problems))
    view.draw(tables)


def _poll(study: ImageStudy, needed: list[TableName], shown_count: int) -> None:
    """Draw the page again once more tables are computed than the page shows, or all are computed."""
    tables, running, _ = study_tables.read_tables(study, needed)
    if not running or len(tables.known) + len(tables.problems) > shown_count:
        st.rerun()


def draw_image_pickers(image: ShownImage) -> None:
    """Draw the pickers of an image, and a popover that uploads the user's own picture."""
    with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
        if uploaded_picture.find_picture() is None:
            image_picker.draw_picker(image)
        if modes.server_mode() == Mode.FULL:
            with st.popover("Your picture", icon=":material/upload:"):
                uploaded_picture.draw_upload()
    if uploaded_picture.find_picture() is None:
        image_picker.draw_name(image)
        found_images.draw_neighbor_buttons(image.name)
