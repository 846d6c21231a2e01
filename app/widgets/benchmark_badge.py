"""The sentence on the session's benchmark, and the warning of a link to one that is missing."""

from __future__ import annotations

import streamlit as st

from app import text
from app.session.benchmark import folder, title, use
from merging.base import settings
from merging.images.benchmarks.benchmark_folders import SERVER
from viz.text import clean_text


def show_missing(benchmark_key: str) -> None:
    """Say that a link is on a benchmark that this machine lacks, and offer the server's."""
    name = text.safe_text(benchmark_key.partition(":")[2] or benchmark_key, 60)
    st.warning(
        f"This link uses the benchmark “{name}”, which this machine does not have, or whose path was typed in "
        "another session. Scores are compared on one benchmark only, so nothing is shown.",
        icon=":material/link_off:",
    )
    label = f"Switch to {clean_text(title(settings.benchmark_folder()), 60)}"
    st.button(label, on_click=use, args=(SERVER,), type="primary")


def badge() -> None:
    """In the sidebar: this session's benchmark, if it is not the one that the server was started on."""
    if folder() != settings.benchmark_folder():
        st.markdown(f":material/dataset: On the benchmark **{text.safe_text(title(folder()), 60)}**")
