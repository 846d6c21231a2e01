"""Masks of single scalars that a merge learned or read: their sparsity and their overlap."""

from __future__ import annotations

import streamlit as st

from app.reading import page_data
from app.session import address
from app.session.click_errors import guarded_fragment
from app.views.learning import learning_tables
from app.widgets import chart_view, selection_pickers
from merging.study.runs.run import Run

AVERAGE_NOTE = (
    "A scalar that several masks keep gets the mean of these experts' task vectors; a scalar that no mask keeps stays "
    "pretrained."
)


@guarded_fragment
def draw_view(run: Run) -> None:
    """Draw the share that every mask keeps of every tensor, and the overlap of every two masks."""
    table = learning_tables.add_tensor_facts(run, page_data.run_table(run.id, learning_tables.LOCALIZATION))
    chart_view.draw_question("localization_map")
    picture = st.container()
    with st.container(horizontal=True, gap="medium"):
        tensors = list(dict.fromkeys(table["tensor"]))
        tensor = selection_pickers.pick_selected(address.TENSOR, tensors, "Tensor", width=380)
        expert = selection_pickers.pick_selected(
            address.EXPERT, list(dict.fromkeys(table["expert"])), "Expert", width=220
        )
    with picture:
        chart_view.draw_chart(
            "localization_map", table, name=f"masks_{run.id[:8]}", question_drawn=True,
            selected=(expert, tensor), sources=[run],
        )  # fmt: skip
    if learning_tables.OVERLAP in run.tables:
        overlap = page_data.run_table(run.id, learning_tables.OVERLAP)
        chart_view.draw_chart(
            "localization_overlap", overlap.rename(columns={"expert": "first", "other": "second"}),
            name=f"mask_overlap_{run.id[:8]}", sources=[run], caption=AVERAGE_NOTE,
        )  # fmt: skip
