"""Attention on the Image page: cells over the image, and its change by block and head."""

from __future__ import annotations

import streamlit as st

from app.session import address, view_state
from app.views.image import study_tables
from app.views.image.model_pickers import pick_parameter
from app.views.image.study_tables import ImageStudy, StudyTables
from app.widgets import chart_view
from merging.study.previews.preview_process import TableName

ALL_HEADS = "all"
NOTE = (
    "Each cell is the attention of the class token to one patch; the share that stays on the class token is above each "
    "grid. Rollout is the product of all blocks so far, each the mean of its heads and the identity in equal parts. "
    "Contribution weights attention by the norm of the value that it passes on. Attention shows where values are read "
    "from, not why a model answers as it does: for that, restore tokens."
)
CHANGE_CAPTION = (
    "Half the L1 distance between the class token’s rows of attention, from 0 (equal) to 1 (no patch in common)."
)


def _list_attention_views() -> dict[str, str]:
    _, head_count = study_tables.read_block_and_head_counts()
    views = [*(f"head {head}" for head in range(head_count)), "mean of heads", "rollout", "contribution"]
    return {ALL_HEADS: "all heads of one block"} | {name: f"{name}, all blocks" for name in views}


def pick_attention() -> str:
    """Draw the pickers of a block or a head; returns the block's number, or the name of a view of all blocks."""
    block_count = max(study_tables.read_block_and_head_counts()[0], 1)  # (blocks, heads)
    with st.container(horizontal=True, gap="medium", vertical_alignment="bottom"):
        view = pick_parameter("Shown", address.ATTENTION, _list_attention_views(), ALL_HEADS, width=260)
        if view == ALL_HEADS:
            return pick_parameter(
                "Block",
                address.BLOCK,
                {str(b): f"block {b}" for b in range(block_count)},
                str(block_count - 1),
                width=140,
            )
    return view


def list_needed_tables(study: ImageStudy, view: str) -> list[TableName]:
    """The tables that this view needs."""
    return [*study.model_tables("attention", view), *study.pair_tables("attention_change")]


def draw_attention(study: ImageStudy, tables: StudyTables, view: str) -> None:
    """Draw the grids of one block or view, and the chart of the change by block and head."""
    table = tables.join_tables(study.model_tables("attention", view))
    if table is not None:
        table = table.drop(columns="against", errors="ignore")  # here the name of the view, not of a second model
        shows_one_block = view.isdecimal()  # its panels are heads; those of another view are blocks
        chart_view.draw_chart(
            "image_attention", table, name=f"attention_{study_tables.make_file_stem(study)}", sources=study.runs,
            by="view" if shows_one_block else "block", picture=study.image.gray, sentence=tables.sentences_in_words,
            wide=view_state.is_single_chart(), caption=NOTE, description=study_tables.study_in_words(study, tables),
        )  # fmt: skip
    change = tables.join_tables(study.pair_tables("attention_change"))
    if change is not None:
        chart_view.draw_chart(
            "image_attention_change", change, name=f"attention_change_{study_tables.make_file_stem(study)}",
            sources=study.runs, sentence=tables.sentences_in_words, caption=CHANGE_CAPTION,
            description=study_tables.study_in_words(study, tables),
        )  # fmt: skip
