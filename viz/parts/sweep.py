"""Parts of the charts of sweeps: the note under them, the marks of the chosen point."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from viz import theme
from viz.text import safe_text

CHARACTERS = 78  # in a line under a chart on a narrow page
SCORES = {"in_domain": "In-domain", "out_of_domain": "Out-of-domain", "h_score": "H-score"}


def note(words: str, below: float) -> tuple[list[dict[str, Any]], float]:
    """An annotation ``below`` px under the plot, in as many lines as it needs, and its height in px."""
    if not words:
        return [], 0
    lines = textwrap.wrap(words, CHARACTERS)
    annotation = {
        "text": "<br>".join(safe_text(line, CHARACTERS + 1) for line in lines), "x": 0, "xref": "paper",
        "xanchor": "left", "y": 0, "yref": "paper", "yanchor": "top", "yshift": -below, "showarrow": False,
        "align": "left", "font": {"size": theme.SMALL, "color": theme.FADED},
    }  # fmt: skip
    return [annotation], theme.LINE_HEIGHT * len(lines) + 6


def ring(x: Sequence[float], y: Sequence[float], **where: Any) -> go.Scatter:
    """The mark around the chosen point."""
    return go.Scatter(
        x=np.asarray(x, np.float32), y=np.asarray(y, np.float32), mode="markers", name="Chosen point", hoverinfo="skip",
        showlegend=False, marker={"symbol": "circle-open", "size": 17, "color": theme.ACCENT, "line": {"width": 3}},
        unselected={"marker": {"opacity": 1}}, **where,
    )  # fmt: skip


def upright(x: float) -> dict[str, Any]:
    """A line through all panels at the chosen value."""
    return {
        "type": "line", "xref": "x", "yref": "paper", "x0": x, "x1": x, "y0": 0, "y1": 1, "layer": "below",
        "line": {"color": theme.ACCENT, "width": 1.5, "dash": "dot"},
    }  # fmt: skip


def stretch(values: Sequence[float] | None, computed: Sequence[float]) -> list[float]:
    """The range of an axis: over all planned ``values`` if they are given, else over the ``computed`` ones."""
    ends = [float(value) for value in (values if values else computed)]
    low, high = min(ends), max(ends)
    pad = 0.03 * (high - low) or 0.5
    return [low - pad, high + pad]
