"""The menu under a chart that saves it: SVG, PNG and PDF are written by the browser, HTML by the server."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import streamlit as st
from streamlit.components.v1 import declare_component

from viz import theme

if TYPE_CHECKING:
    import plotly.graph_objects as go

HERE = Path(__file__).parent
VENDOR = HERE / "vendor"  # what writes PDF; fetched by the browser when a PDF is asked for
CAPTION, SOURCE = "Caption", "Source"
FORMATS = (
    "SVG and PDF stay sharp at any size; PDF holds its font. PNG has three pixels for one on the screen. "
    "HTML opens in any browser without a network, and still shows values under the pointer."
)


def menu(
    key: str,
    figure: go.Figure,
    *,
    name: str,
    caption: str,
    source: str,
) -> None:
    """Draw the menu of the chart ``key``. ``name`` is the files' name; ``caption`` and ``source`` are plain text."""
    with st.popover("Figure", icon=":material/photo_camera:", type="tertiary", help="Save the figure"):
        below = st.pills(
            "Under the picture",
            (CAPTION, SOURCE),
            selection_mode="multi",
            default=(CAPTION, SOURCE),
            key=f"below_{key}",
        )
        notes = [caption] if CAPTION in below and caption else []
        notes += [source] if SOURCE in below else []
        data = {**picture(key, figure, name, notes), "vendor": _vendor()}
        with st.container(horizontal=True, vertical_alignment="top", gap="small"):
            _saver()(key=f"save_{key}", data=data, width="content")
            st.download_button(
                "HTML", _page(figure, data["title"], notes), f"{theme.file_name(name)}.html", "text/html",
                key=f"html_{key}", on_click="ignore",
            )  # fmt: skip
        st.caption(FORMATS)


def picture(key: str, figure: go.Figure, name: str, notes: list[str]) -> dict[str, Any]:
    """What the browser's scripts must know of the chart ``key`` to draw its picture, with lines of text under it."""
    from viz.registry import find

    return {
        "chart": f"chart_{key}",
        "name": theme.file_name(name),
        "title": find(key).question,
        "description": str(figure.layout.meta["alt"]),
        "notes": notes,
    }


@cache
def _vendor() -> str:
    """The address under which Streamlit serves the folder ``vendor``, as it does the files of a component."""
    served = declare_component("vendor", VENDOR)
    return "/".join(["", *st.get_option("server.baseUrlPath").strip("/").split(), "component", served.name, ""])


def _page(figure: go.Figure, question: str, notes: list[str]) -> Callable[[], bytes]:
    """Writes the page when it is asked for, which is outside of any session."""
    from viz.report.document import write_figure

    return lambda: write_figure(figure, question, notes).encode()


@cache
def _saver() -> Any:
    """The buttons whose files the browser writes, registered once."""
    return register("mergescope_figure", (HERE / "figure.html").read_text("utf-8"), "figure.js", "pdf.js")


def register(name: str, html: str, *scripts: str) -> Any:
    """The component ``name``, whose ``scripts`` do something with the picture of a chart."""
    css, *js = ((HERE / file).read_text("utf-8") for file in ("figure.css", "picture.js", *scripts))
    return st.components.v2.component(name, html=html, css=css, js="\n".join(js))
