"""Singular values of a layer's joint space for the experts of each of two runs, and the difference."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart
from viz.drawing import Drawing, Trace, scatter
from viz.parts import legends
from viz.text import count, plural, real

SIDES = {"a": ("A", "#E08214", "circle"), "b": ("B", "#8073AC", "square"), "difference": ("B − A", "#5F6B7A", "circle")}
HEIGHT, BOTTOM, LEFT = 420, 56, 84


@chart(
    title="Two joint spaces",
    question="How many directions do the experts of either run fill?",
    columns=("direction", "a", "b", "difference"),
    rows=("direction",),
    empty="No expert changed this layer.",
)
def compare_spectrum(table: pd.DataFrame, *, labels: tuple[str, str] = ("A", "B"), present: bool = False) -> go.Figure:
    """Singular values of A and of B in the same axes, largest first, and B − A below.

    direction (from 1), a and b (singular values, NaN where a space has no such direction), difference. ``labels`` are
    the names of the runs.
    """
    fig, names = Drawing(), [f"A: {labels[0]}", f"B: {labels[1]}"]
    for column, name in zip(SIDES, (*names, "B − A"), strict=True):
        fig.add_trace(_points(table, column, name))
    values = table[["a", "b"]].to_numpy(np.float64)
    positive = values[np.isfinite(values) & (values > 0)]
    low, high = float(positive.min(initial=1e30)), float(positive.max(initial=0))
    low, high = (low / 1.3, high * 1.3) if high else (0.1, 1.0)
    marks = theme.ticks(low, high, log=True)
    marks["tickvals"] = [10**at for at in marks["tickvals"]]
    far = 1.1 * float(np.nanmax(np.abs(table["difference"].to_numpy(np.float64)), initial=0)) or 1.0
    last = int(table["direction"].max())
    fig.update_layout(
        xaxis={"title": {"text": "Direction, largest first"}, "anchor": "y2", "range": [0.5 - 0.01 * last, last + 0.5]},
        yaxis={"title": {"text": "Singular value"}, "domain": [0.45, 1], "type": "log",
               "range": [float(np.log10(low)), float(np.log10(high))], **marks},
        yaxis2={"title": {"text": "B − A"}, "domain": [0, 0.35], "range": [-far, far], "zeroline": True, "nticks": 4,
                "zerolinecolor": theme.INK},
    )  # fmt: skip
    legend, top = legends.above([*names, "B − A"])
    fig.update_layout(legend=legend, margin={"l": LEFT, "r": 26, "t": top + 24, "b": BOTTOM}, showlegend=True)
    return theme.finish(fig, "compare_spectrum", _alt(table), HEIGHT + top, present, str(last))


def _points(table: pd.DataFrame, column: str, name: str) -> Trace:
    side, color, symbol = SIDES[column]
    rows = table[np.isfinite(table[column].to_numpy(np.float64))]
    hover = [
        f"<b>direction {count(direction)}</b><br>{side}: {real(value)}"
        for direction, value in zip(rows["direction"], rows[column], strict=True)
    ]
    return scatter(
        x=rows["direction"].to_numpy(np.float32), y=rows[column].to_numpy(np.float32), mode="markers",
        name=legends.entry(name), legendgroup=column, marker={"color": color, "size": 5, "symbol": symbol}, text=hover,
        yaxis="y2" if column == "difference" else "y", hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip


def _alt(table: pd.DataFrame) -> str:
    a, b = (int(table[side].notna().sum()) for side in ("a", "b"))
    higher = int((table["difference"] > 0).sum())
    return (
        f"Singular values of {plural(a, 'direction')} of A and {plural(b, 'direction')} of B; B is larger in {higher}."
    )
