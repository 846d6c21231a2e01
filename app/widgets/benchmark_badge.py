"""The sentence on the session's benchmark, and the warning of a link to one that is missing."""

from __future__ import annotations

import streamlit as st

from app import page_text
from app.session.benchmark_choice import benchmark_folder, benchmark_title, switch_benchmark
from merging.base import settings
from merging.images.benchmarks.benchmark_folders import SERVER
from viz.figure_text import clean_text


def draw_missing(benchmark_key: str) -> None:
    """Report that a link uses a benchmark that this machine lacks, and offer the server's."""
    name = page_text.safe_text(benchmark_key.partition(":")[2] or benchmark_key, 60)
    st.warning(
        f"This link uses the benchmark “{name}”, which this machine does not have, or whose path was typed in "
        "another session. Scores are compared on one benchmark only, so nothing is shown.",
        icon=":material/link_off:",
    )
    label = f"Switch to {clean_text(benchmark_title(settings.benchmark_folder()), 60)}"
    st.button(label, on_click=switch_benchmark, args=(SERVER,), type="primary")


def draw_badge() -> None:
    """In the sidebar: this session's benchmark, if it is not the one with which the server was started."""
    if benchmark_folder() != settings.benchmark_folder():
        st.markdown(
            f":material/dataset: On the benchmark **{page_text.safe_text(benchmark_title(benchmark_folder()), 60)}**"
        )
