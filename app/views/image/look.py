"""Where models look, on the Image page: cells over the image, and the heads in which a run looks elsewhere."""

from __future__ import annotations

import streamlit as st

from app.session import address, state
from app.views.image import data
from app.views.image.data import Study, Tables
from app.views.image.models import value
from app.widgets import chart
from merging.study.previews.bench import TableName

ALL = "all"
NOTE = (
    "The class token’s row of attention in hard cells, one for each patch; the share that stays on the class token "
    "stands over each grid. Rollout is the product of all blocks so far, each the mean of its heads and the identity "
    "in equal parts; contribution weighs attention by the length of what is passed on. Attention is where values are "
    "read from, not why an answer was given: for that, restore tokens."
)
CHANGE = "Half the L1 distance of the class token’s rows, from 0 (looks alike) to 1 (looks elsewhere entirely)."


def _units() -> dict[str, str]:
    heads = data.depths()[1]
    views = [*(f"head {head}" for head in range(heads)), "mean of heads", "rollout", "contribution"]
    return {ALL: "all heads of one block"} | {name: f"{name}, all blocks" for name in views}


def pick() -> str:
    """The pickers of a block or a head; what they choose is the number of a block, or a view of all blocks."""
    blocks = max(data.depths()[0], 1)
    with st.container(horizontal=True, gap="medium", vertical_alignment="bottom"):
        unit = value("Shown", address.ATTENTION, _units(), ALL, width=260)
        if unit == ALL:
            return value(
                "Block", address.BLOCK, {str(b): f"block {b}" for b in range(blocks)}, str(blocks - 1), width=140
            )
    return unit


def wanted(study: Study, chosen: str) -> list[TableName]:
    """The tables of this view."""
    return [*study.each("attention", chosen), *study.pairs("attention_change")]


def draw(study: Study, tables: Tables, chosen: str) -> None:
    """The grids of one block or one view, and the change by block and head."""
    table = tables.joined(study.each("attention", chosen))
    if table is not None:
        table = table.drop(columns="against", errors="ignore")
        chart.chart(
            "image_attention", table, name=f"attention_{data.file_name(study)}", of=study.runs,
            by="view" if chosen.isdecimal() else "block", picture=study.image.gray, sentence=tables.words,
            wide=state.alone(), caption=NOTE, description=data.about(study, tables),
        )  # fmt: skip
    change = tables.joined(study.pairs("attention_change"))
    if change is not None:
        chart.chart(
            "image_attention_change", change, name=f"attention_change_{data.file_name(study)}", of=study.runs,
            sentence=tables.words, caption=CHANGE, description=data.about(study, tables),
        )  # fmt: skip
