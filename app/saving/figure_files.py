"""The menu under a chart that saves it: SVG, PNG and PDF are written by the browser, HTML by the server."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import Any

import streamlit as st
from streamlit.components.v1 import declare_component

from app.saving import provenance
from app.saving.shown_chart import ShownChart
from viz import theme

FOLDER = Path(__file__).parent
VENDOR_FOLDER = FOLDER / "vendor"  # the scripts that write PDF; the browser fetches them for the first PDF
CAPTION, SOURCE = "Caption", "Source"
FORMATS_NOTE = (
    "SVG and PDF stay sharp at any size; PDF contains its font. PNG has three pixels for each pixel on the screen. "
    "HTML opens in any browser without a network, and still shows values under the pointer."
)


def draw_save_menu(chart: ShownChart) -> None:
    """Draw the menu of a chart; its contents are made when a visitor opens it."""
    popover = st.popover(
        "Figure", icon=":material/photo_camera:", type="tertiary", help="Save the figure", key=f"figure_{chart.key}",
        on_change="rerun",
    )  # fmt: skip
    if not popover.open:
        return
    with popover:
        widget_key, remembered_key = f"below_{chart.key}", f"_below_{chart.key}"  # the choice outlives the menu
        st.session_state.setdefault(widget_key, st.session_state.get(remembered_key, [CAPTION, SOURCE]))
        chosen_notes = st.pills("Under the picture", (CAPTION, SOURCE), selection_mode="multi", key=widget_key)
        st.session_state[remembered_key] = chosen_notes
        notes = [chart.caption] if CAPTION in chosen_notes and chart.caption else []
        notes += [provenance.provenance_line(chart)] if SOURCE in chosen_notes else []
        data = {**picture_data(chart, notes), "vendor": _vendor_url()}
        with st.container(horizontal=True, vertical_alignment="top", gap="small"):
            _save_component()(key=f"save_{chart.key}", data=data, width="content")
            st.download_button(
                "HTML", partial(_write_page, chart, data["title"], notes), f"{data['name']}.html", "text/html",
                key=f"html_{chart.key}", on_click="ignore",
            )  # fmt: skip
        st.caption(FORMATS_NOTE)


def picture_data(chart: ShownChart, notes: list[str]) -> dict[str, Any]:
    """The data with which the browser's scripts draw the picture of a chart, with ``notes`` as lines under it."""
    from viz.chart_registry import find
    from viz.dark_ground import TO_LIGHT

    return {
        "chart": f"chart_{chart.key}",
        "name": theme.file_name(chart.name),
        "title": find(chart.key).question,
        "description": str(chart.draw_figure().layout.meta["alt"]),
        "notes": notes,
        "light": dict(TO_LIGHT),  # colors of the dark ground -> of the light one, which all files have
    }


@cache
def _vendor_url() -> str:
    """The address under which Streamlit serves the folder ``vendor``, like the files of a component."""
    served = declare_component("vendor", VENDOR_FOLDER)
    return "/".join(["", *st.get_option("server.baseUrlPath").strip("/").split(), "component", served.name, ""])


def _write_page(chart: ShownChart, question: str, notes: list[str]) -> bytes:
    """The HTML page, written outside of any session."""
    from viz.report.document import write_figure

    return write_figure(chart.draw_figure(), question, notes).encode()


@cache
def _save_component() -> Any:
    """The component with buttons for the files that the browser writes, registered once."""
    return register_component("mergescope_figure", (FOLDER / "figure.html").read_text("utf-8"), "figure.js", "pdf.js")


def register_component(name: str, html: str, *scripts: str) -> Any:
    """The component ``name``, whose ``scripts`` use the picture of a chart."""
    css, *js = ((FOLDER / file).read_text("utf-8") for file in ("figure.css", "picture.js", *scripts))
    return st.components.v2.component(name, html=html, css=css, js="\n".join(js))
