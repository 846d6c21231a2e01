"""Links that keep the chosen tensor: from each page about layers to the same tensor on the others."""

from __future__ import annotations

import streamlit as st

from app.reading import data
from app.session import pages, state
from app.widgets import page
from merging.checkpoints.families import LINEAR_MAPS
from merging.runs.run import Run

SIGNS, LAYERS = "sign agreement", "layer by layer"  # the views that the links open


def draw(run: Run, tensor: str | None, here: str) -> None:
    """Draw the links of a tensor of a run; ``here`` is the path of this page, to which none leads."""
    rows = data.table(run.id, "tensors")
    chosen = rows[rows["tensor"] == tensor]
    if tensor is None or chosen.empty:
        return
    linear = str(chosen["role"].iloc[0]) in LINEAR_MAPS
    layer = {state.LAYER: tensor} if linear else {}
    places = (
        (pages.DRIFT, "Its drift", "moving", {state.RUNS: run.id, state.VIEW: LAYERS}),
        (pages.MASKS, "Its saliency and masks", "grid_on", {state.RUN: run.id}),
        (pages.CONFLICTS, "Do experts agree on it?", "call_split", {state.RUN: run.id, state.ABOUT: SIGNS, **layer}),
    )
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown("**Why does this layer drift?**" if here == pages.DRIFT else "**The same layer:**")
        for path, label, icon, query in places:
            if path != here:
                page.open_page(path, label, icon, **query, **{state.TENSOR: tensor})
