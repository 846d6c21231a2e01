"""Pieces of every page: its heading, links to other pages, empty states, the address of the view, and the session's
benchmark with the warning of a link to one that is missing."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import streamlit as st

from app import text
from app.session import benchmark
from merging import settings
from merging.benchmarks.folders import SERVER
from viz.text import clean_text

ROW = 35  # px of a row of a table
READABLE = """<style>
[data-testid="stCaptionContainer"], [data-testid="stImageCaption"] { opacity: 0.8; }
kbd { color: inherit !important; opacity: 1 !important; }
:focus-visible, label:has(input:focus-visible) { outline: 2px solid #0B6AA8 !important; outline-offset: 1px; }
</style>"""  # Streamlit's captions have a contrast of 4.1, and its focus on links is a gray ground


def heading(title: str, sentence: str) -> None:
    """Draw the page's title and what it is for; both are trusted Markdown."""
    st.title(title, anchor=False)
    st.markdown(sentence)


def style() -> None:
    """Draw captions, and the line around what the keyboard has focused, so that they can be seen."""
    st.html(READABLE)


def open_page(path: str, label: str, icon: str, width: Any = "content", **query: str) -> None:
    """Draw a link to a page with state; it can be opened in a new tab like any other link."""
    query |= benchmark.query()
    st.page_link(path, label=label, icon=f":material/{icon}:", query_params=query or None, width=width)


def table_height(rows: int, most: int) -> int:
    """Height in px of a table: all of its rows, at most ``most``."""
    return min(ROW * (rows + 1) + 3, most)


def empty(sentence: str, label: str, path: str, **query: str) -> None:
    """Draw what is missing, and a link to the page that provides it."""
    with st.container(border=True):
        st.markdown(sentence)
        open_page(path, label, "arrow_forward", **query)


def link() -> None:
    """Draw the address that restores this view."""
    with st.popover("Link", icon=":material/link:", type="tertiary", help="A link that restores this view"):
        query = urlencode(st.query_params.to_dict())
        address = (st.context.url or "http://localhost:8501/").split("?")[0]
        st.code(f"{address}?{query}" if query else address, language=None, wrap_lines=True)
        st.caption(
            "This is also the address of this page. It names runs by their recipes, so it works wherever the runs are."
        )


def missing_benchmark(benchmark_key: str) -> None:
    """Say that a link is on a benchmark that this machine lacks, and offer the server's."""
    name = text.safe_text(benchmark_key.partition(":")[2] or benchmark_key, 60)
    st.warning(
        f"This link uses the benchmark “{name}”, which this machine does not have, or whose path was typed in "
        "another session. Scores are compared on one benchmark only, so nothing is shown.",
        icon=":material/link_off:",
    )
    label = f"Switch to {clean_text(benchmark.title(settings.benchmark_folder()), 60)}"
    st.button(label, on_click=benchmark.use, args=(SERVER,), type="primary")


def benchmark_badge() -> None:
    """In the sidebar: this session's benchmark, if it is not the one that the server was started on."""
    if benchmark.folder() != settings.benchmark_folder():
        st.markdown(
            f":material/dataset: On the benchmark **{text.safe_text(benchmark.title(benchmark.folder()), 60)}**"
        )
