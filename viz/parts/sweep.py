"""Parts of the charts of sweeps: the note under them, the marks of the chosen point, what fails a requirement."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from viz import theme
from viz.text import percent

FAILING = "rgba(90,99,110,0.2)"  # what does not meet the requirement
REQUIRED = ("meets", "certainty")  # columns: whether a point meets it, and in which share of draws of the images
CHOSEN = {"color": theme.ACCENT, "width": 1.5, "dash": "dot"}  # the line at the chosen value
SCORES = {"in_domain": "In-domain", "out_of_domain": "Out-of-domain", "h_score": "H-score"}


def ring(x: Sequence[float], y: Sequence[float], size: int = 17, width: float = 3, **where: Any) -> dict[str, Any]:
    """The mark around the chosen point."""
    return where | {
        "type": "scatter", "x": np.asarray(x, np.float32), "y": np.asarray(y, np.float32), "mode": "markers",
        "name": "Chosen point", "hoverinfo": "skip", "showlegend": False, "unselected": {"marker": {"opacity": 1}},
        "marker": {"symbol": "circle-open", "size": size, "color": theme.ACCENT, "line": {"width": width}},
    }  # fmt: skip


def stretch(values: Sequence[float] | None, computed: Iterable[float]) -> list[float]:
    """The range of an axis: over all planned ``values`` if they are given, else over the ``computed`` ones."""
    ends = [float(value) for value in (values if values else computed)]
    low, high = min(ends), max(ends)
    pad = 0.03 * (high - low) or 0.5
    return [low - pad, high + pad]


def shade(at_least: float, bottom: float, axes: tuple[str, str]) -> list[dict[str, Any]]:
    """The part of a panel with these axes from ``bottom`` up to the required value, and the line at that value."""
    panel = {"xref": f"{axes[0]} domain", "x0": 0, "x1": 1, "yref": axes[1], "y1": at_least, "layer": "below"}
    return [
        panel | {"type": "rect", "y0": bottom, "fillcolor": FAILING, "line": {"width": 0}},
        panel | {"type": "line", "y0": at_least, "line": {"color": theme.FADED, "width": 1.5, "dash": "dash"}},
    ]


def hollow(trace: Mapping[str, Any], rows: pd.DataFrame, **marker: Any) -> list[dict[str, Any]]:
    """White marks over the points of ``trace`` that do not meet the requirement, if ``rows`` say which do (meets)."""
    fails = np.flatnonzero(~rows["meets"].to_numpy(bool)) if "meets" in rows else np.array([], np.int64)
    if not len(fails):
        return []
    points: dict[str, Any] = {name: np.asarray(trace[name], np.float32)[fails] for name in "xy"}
    points |= {name: [trace[name][place] for place in fails] for name in ("customdata", "text")}
    look = trace["marker"] | {"color": "white", "line": {"color": trace["marker"]["color"], "width": 2}} | marker
    return [dict(trace) | points | {"mode": "markers", "showlegend": False, "marker": look}]


def met(row: Mapping[Any, Any]) -> str:
    """A line of hover text about the requirement, if there is one."""
    if "meets" not in row:
        return ""
    text = f"<br>{'meets' if row['meets'] else 'does not meet'} the requirement"
    share = row.get("certainty", math.nan)
    return text + (f", which {percent(share, 0)} of the draws do" if math.isfinite(share) else "")
