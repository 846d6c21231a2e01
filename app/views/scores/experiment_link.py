"""A link from Scores to the table of the published experiment whose benchmark is open."""

from __future__ import annotations

import streamlit as st

from app import page_text
from app.reading.papers import experiments
from app.session import address, pages
from app.widgets import page_parts


def draw_link() -> None:
    """Draw the link if the open benchmark is that of a published experiment."""
    if (experiment := experiments.open_experiment()) is None:
        return
    with st.container(border=True, horizontal=True, vertical_alignment="center"):
        st.markdown(
            f"This is the published experiment **{page_text.safe_text(experiment.key)}**: "
            f"{page_text.safe_text(experiment.title)}."
        )
        query = {address.MODELS_VIEW: "data", address.EXPERIMENT: experiment.key}
        query |= {address.BENCHMARK_SOURCE: "published experiments"}
        page_parts.draw_page_link(pages.MODELS, "Ours beside the papers’ numbers", "menu_book", **query)
