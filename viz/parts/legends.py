"""Legends above a plot, with the rows that they need on the narrowest page, and margins of figures with a legend."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from viz import theme
from viz.drawing import Drawing, Picture, Trace
from viz.figure_text import safe_text

NARROW_WIDTH = 440  # px: width of a legend on that page with margins of the usual width
USUAL_MARGINS = 110  # px: those margins, left and right
ROW_HEIGHT, SWATCH_WIDTH = 20, 50  # px: height of a row, and width of an entry without its text
MAX_NAME = 40


def legend_name(name: object) -> str:
    """A name as a legend writes it."""
    return safe_text(name, MAX_NAME)


def count_legend_rows(names: Sequence[str], width: float = NARROW_WIDTH) -> int:
    """Number of rows of ``width`` px that these names take; an entry that does not fit begins another row."""
    row_count, used_width = 1, 0.0
    for entry_width in (theme.text_width(legend_name(name)) + SWATCH_WIDTH for name in names):
        row_count, used_width = (
            (row_count, used_width + entry_width) if used_width + entry_width <= width else (row_count + 1, entry_width)
        )
    return row_count


def legend_above(
    names: Sequence[str], title: str = "", start: float = 0, margins: float = USUAL_MARGINS
) -> tuple[dict[str, Any], float]:
    """Settings of a legend ``start`` px below the upper edge of the figure, and the px from that edge to its end.

    Each trace needs a legend group; without one plotly puts entries into columns as wide as the widest. A legend is as
    wide as the plot, so wider ``margins`` (left and right together, px) leave less room for it.
    """
    small = {"font": {"size": theme.SMALL_SIZE}}
    settings = small | {
        "orientation": "h", "x": 0, "xref": "container", "y": 1, "yref": "container", "yanchor": "top",
        "itemsizing": "constant", "tracegroupgap": 0,
    }  # fmt: skip
    if title:
        settings["title"] = small | {"text": title}
    return settings, start + ROW_HEIGHT * count_legend_rows(
        [title, *names] if title else names, NARROW_WIDTH + USUAL_MARGINS - margins
    )


def list_entries(traces: Sequence[Trace]) -> list[str]:
    """The names in the legend of ``traces``, in its order, unescaped."""
    shown = [trace for trace in traces if trace.get("showlegend", True)]
    shown.sort(key=lambda trace: int(trace.get("legendrank", 1000)))
    names = dict.fromkeys((trace.get("legendgroup"), str(trace["name"])) for trace in shown)
    return [html.unescape(name) for _, name in names]


def add_legend(
    fig: Drawing,
    alt: str,
    inner: float,
    zoom_key: str = "",
    *,
    left: float = 72,
    right: float = 26,
    below: float = 56,
    gap: float = 20,
    wide: bool = False,
    title: str = "",
) -> Picture:
    """The drawing under a legend of its traces, if they have entries; its height is ``inner`` px without that legend.

    ``gap`` is the space between legend and plot, ``left``, ``right`` and ``below`` are the margins, px. With ``wide``
    margins the legend has less room. ``title`` is the title of the legend.
    """
    names = list_entries(fig.data)
    legend, top = legend_above(names, title, margins=left + right if wide else USUAL_MARGINS) if names else ({}, 0.0)
    fig.update_layout(legend=legend, margin={"l": left, "r": right, "t": top + gap, "b": below})
    return Picture(fig, alt, inner + top, zoom_key=zoom_key)


def merge_entries(fig: Drawing) -> None:
    """Reduce a group in several panels to one entry in the legend, which hides the group in all of them."""
    groups: set[str] = set()
    for trace in fig.data:
        if trace.get("hoverinfo") != "skip":
            trace["showlegend"] = trace["legendgroup"] not in groups
            groups.add(trace["legendgroup"])
