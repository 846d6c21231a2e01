"""One tensor's saliency for every expert, beside the threshold that decides whether it is kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order
from viz.drawing import Drawing, Trace, scatter
from viz.text import first_few, identifier, plural, real, safe_text, short_name


@chart(
    title="Saliency of one tensor",
    question="For which experts is this tensor salient enough to keep?",
    columns=("expert", "saliency", "threshold", "kept"),
    rows=("expert",),
    picks=("expert",),
    empty="No saliency was recorded for this tensor.",
)
def saliency_tensor(
    table: pd.DataFrame,
    *,
    tensor: str = "",
    selected: str | None = None,
    experts: list[str] | None = None,
    log: bool = False,
    present: bool = False,
) -> go.Figure:
    """A dot for each expert's saliency, filled if its own mask keeps the tensor, and a tick at its threshold.

    expert, saliency and threshold (units of the weights), kept (own mask). ``tensor`` names the tensor on the axis;
    ``experts`` is the full ordered list that fixes the colors, if the table has only some of them.
    """
    names = in_order(table["expert"])
    look = theme.looks(experts or names)
    saliency = table["saliency"].to_numpy(np.float64)
    threshold = table["threshold"].to_numpy(np.float64)
    kept = table["kept"].to_numpy(bool)
    marks = [look.get(name, theme.KINDS["individual"]) for name in names]
    rows = np.arange(len(names), dtype=np.float32)
    hover = [
        f"<b>{safe_text(name)}</b><br>saliency {real(s)}, threshold {real(t)}: {'kept' if k else 'pruned'}"
        for name, s, t, k in zip(names, saliency, threshold, kept, strict=True)
    ]
    shared = {"y": rows, "text": hover, "hovertemplate": "%{text}<extra></extra>"}
    clicks = {"customdata": [[identifier(name)] for name in names], "unselected": {"marker": {"opacity": 1}}}
    tick = {"symbol": "line-ns", "size": 16, "line": {"color": theme.INK, "width": 2.5}}
    fig = Drawing([
        _stems(saliency, threshold, rows),
        scatter(x=threshold.astype(np.float32), mode="markers", name="Threshold", marker=tick, **shared),
        _dots("Kept", np.where(kept, saliency, np.nan), marks, **shared, **clicks),
        _dots("Pruned", np.where(kept, np.nan, saliency), marks, **shared, **clicks),
    ])  # fmt: skip
    what = f"Saliency of {short_name(tensor, 40)}<br>" if tensor else "Saliency "
    fig.update_xaxes(
        title={"text": f"{what}(mean |deviation|, units of the weights)"}, **_axis(saliency, threshold, log)
    )
    labels = [safe_text(name, 24) for name in names]
    fig.update_yaxes(
        title={"text": "Expert"}, tickmode="array", tickvals=rows, ticktext=labels, range=[len(names) - 0.5, -0.5]
    )
    fig.update_layout(
        legend={"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "yref": "paper"},
        margin={"l": max(map(theme.text_width, labels)) + 40, "t": 40, "r": 24, "b": 64},
        shapes=_row_outline(names, selected),
    )
    alt = f"{plural(int(kept.sum()), 'expert')} of {len(names)} keep this tensor"
    alt += f": {first_few(np.array(names)[kept], 8)}." if kept.any() else "."
    return theme.finish(fig, "saliency_tensor", alt, 124 + 24 * max(len(names), 3), present, tensor)


def _axis(saliency: np.ndarray, threshold: np.ndarray, log: bool) -> dict[str, object]:
    """An axis from zero, or a log axis if ``log`` and nothing is zero, with room for half a mark at the ends."""
    values = np.concatenate([saliency, threshold])
    values = values[np.isfinite(values)]
    low, high = float(values.min(initial=1)), float(values.max(initial=0))
    if log and low > 0 and high > 0:
        low, high = low / 1.15, high * 1.15
        marks = theme.ticks(low, high, log=True)
        places = [10.0**place for place in marks["tickvals"]]
        return marks | {"tickvals": places, "type": "log", "range": [np.log10(low), np.log10(high)]}
    high = 1.06 * high or 1.0
    return theme.ticks(0, high) | {"range": [0, high]}


def _dots(word: str, saliency: np.ndarray, marks: list[theme.Look], **shared: Any) -> Trace:
    """The dots of experts that keep the tensor, which are filled, or of those that prune it, which are open."""
    filled, colors = word == "Kept", [mark.color for mark in marks]
    return scatter(
        x=saliency.astype(np.float32), mode="markers", name=word, **shared,
        marker={
            "symbol": [mark.symbol for mark in marks], "size": 12, "opacity": 1, "color": colors if filled else "white",
            "line": {"color": theme.INK if filled else colors, "width": 1 if filled else 2.5},
        },
    )  # fmt: skip


def _stems(saliency: np.ndarray, threshold: np.ndarray, rows: np.ndarray) -> Trace:
    """Thin lines from each threshold to its dot: longer means a clearer case."""
    nothing = np.full(len(rows), np.nan)
    return scatter(
        x=np.stack([threshold, saliency, nothing], 1).ravel().astype(np.float32), y=np.repeat(rows, 3), mode="lines",
        line={"color": theme.FADED, "width": 1.5}, hoverinfo="skip", showlegend=False, name="Distance",
    )  # fmt: skip


def _row_outline(names: list[str], selected: str | None) -> list[dict[str, object]]:
    if selected not in names:
        return []
    row = names.index(selected)
    return [
        {
            "type": "rect", "xref": "x domain", "yref": "y", "x0": 0, "x1": 1, "y0": row - 0.45, "y1": row + 0.45,
            "line": {"color": theme.ACCENT, "width": 2}, "name": "selected",
        }
    ]  # fmt: skip
