"""HTML that shows a view in a frame on another page, with a picture of the chart in case no server answers."""

from __future__ import annotations

import html
from functools import cache
from typing import Any

from app.saving.figure_files import register_component

BUTTON_HTML = '<button type="button">Copy with a still</button><p role="status"></p>'


def frame_html(address: str, title: str) -> str:
    """The frame alone."""
    return (
        f'<iframe src="{html.escape(address)}" title="{html.escape(title)}" width="960" height="540" '
        'style="border:0;max-width:100%"></iframe>'
    )


def draw_copy_button(key: str, picture: dict[str, Any], address: str) -> None:
    """A button that copies the frame with a picture of the chart ``key``; see ``figure_files.picture_data``."""
    _copy_component()(key=f"snippet_{key}", data={**picture, "address": address}, width="content")


@cache
def _copy_component() -> Any:
    """The button, registered once."""
    return register_component("mergescope_snippet", BUTTON_HTML, "snippet.js")
