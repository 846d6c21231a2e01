"""Masks of single scalars that a merge learned or took: how sparse they are, and where they collide."""

from __future__ import annotations

import streamlit as st

from app.session import address, selection
from app.session.clicks import fragment
from app.views.learning import data
from app.widgets import chart, selected
from merging.study.runs.run import Run

HOW = "Click a cell, or choose"
AVERAGED = (
    "Scalars that several masks keep take the mean of these experts' task vectors; those that none keeps stay "
    "pretrained."
)


def choose_cell() -> None:
    """Callback of a click: the cell's expert and tensor go into their pickers."""
    if cell := chart.clicked("localization_map"):
        selection.choose(address.TENSOR, cell["tensor"])
        selection.choose(address.EXPERT, cell["expert"])


@fragment
def view(run: Run) -> None:
    """The share that every mask keeps of every tensor, and the overlap of any two."""
    table = data.masks(run)
    chart.ask("localization_map")
    picture = st.container()
    with st.container(horizontal=True, gap="medium"):
        tensors = list(dict.fromkeys(table["tensor"]))
        tensor = selected.pick(address.TENSOR, tensors, "Tensor", placeholder=HOW, width=380)
        expert = selected.pick(address.EXPERT, list(dict.fromkeys(table["expert"])), "Expert", width=220)
    with picture:
        chart.chart(
            "localization_map", table, name=f"masks_{run.id[:8]}", headed=True, on_click=choose_cell,
            selected=(expert, tensor), of=[run],
        )  # fmt: skip
    if data.OVERLAP in run.tables:
        chart.chart(
            "localization_overlap", data.overlap(run), name=f"mask_overlap_{run.id[:8]}", of=[run], caption=AVERAGED
        )
