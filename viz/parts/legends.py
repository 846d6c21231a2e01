"""Legends above a plot, in as many rows as they take on the narrowest page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from viz import theme
from viz.text import safe_text

NARROW = 440  # px that a legend has there
ROW, SWATCH = 20, 50  # px: height of a row, and what an entry takes beside its text
LONGEST = 40


def entry(name: object) -> str:
    """A name as a legend writes it."""
    return safe_text(name, LONGEST)


def rows(names: Sequence[str]) -> int:
    """Rows that entries of these names take; one that does not fit begins another row."""
    found, used = 1, 0.0
    for width in (theme.text_width(entry(name)) + SWATCH for name in names):
        found, used = (found, used + width) if used + width <= NARROW else (found + 1, width)
    return found


def above(names: Sequence[str], title: str = "", start: float = 0) -> tuple[dict[str, Any], float]:
    """Settings of a legend at the top of the figure, ``start`` px below its upper edge, and the px down to its end.

    Traces need a legend group each: without, plotly puts entries into columns as wide as the widest.
    """
    small = {"font": {"size": theme.SMALL}}
    settings = small | {
        "orientation": "h", "x": 0, "xref": "container", "y": 1, "yref": "container", "yanchor": "top",
        "itemsizing": "constant", "tracegroupgap": 0,
    }  # fmt: skip
    if title:
        settings["title"] = small | {"text": title}
    return settings, start + ROW * rows([title, *names] if title else names)
