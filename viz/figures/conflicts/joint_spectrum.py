"""Singular values of all experts' matrices side by side, and the rank cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart
from viz.drawing import Drawing, Trace, scatter
from viz.parts import legends
from viz.text import count, percent, plural, power, real

HEIGHT, BOTTOM, LEFT = 300, 56, 76
KEPT, CUT = "kept", "dropped by the rank cut"


@chart(
    title="Singular values of the joint space",
    question="How many directions do the experts' changes fill together?",
    columns=("direction", "value", "share", "kept", "energy"),
    rows=("direction",),
    empty="No expert changed this layer.",
)
def joint_spectrum(table: pd.DataFrame, *, rank_tol: float = 0.01, present: bool = False) -> go.Figure:
    """The singular values, largest first, on a logarithmic axis.

    direction (from 1), value, share (of the largest), kept (bool, above the cut), energy (share of all squared entries
    up to that direction). ``rank_tol`` is the cut, a share of the largest value.
    """
    kept = table["kept"].astype(bool)
    traces: list[Trace] = []
    for name, rows, color in ((KEPT, table[kept], theme.PALETTE[0]), (CUT, table[~kept], theme.PALETTE[5])):
        if len(rows):
            traces.append(_points(rows, name, color))
    low, high = float(table["value"].min()), float(table["value"].max())
    limit = rank_tol * high
    ends = np.log10([max(min(low, limit or low), high * 1e-8), high])
    margin = 0.05 * (ends[1] - ends[0]) + 0.05
    marks = theme.ticks(float(10 ** ends[0]), float(10 ** ends[1]) * 1.0001, log=True)
    marks["tickvals"] = [10**at for at in marks["tickvals"]]
    fig = Drawing(traces)
    fig.update_yaxes(
        title={"text": "Singular value"}, type="log", range=[float(ends[0] - margin), float(ends[1] + margin)], **marks
    )
    last = len(table)
    fig.update_xaxes(title={"text": "Direction, largest first"}, range=[0.5 - 0.01 * last, last + 0.5 + 0.01 * last])
    if rank_tol > 0:
        fig.add_shape(theme.across(limit, {"color": theme.INK, "width": 1.4, "dash": "dash"}))
        fig.add_annotation(_label(limit, rank_tol))
    legend, top = legends.above([trace["name"] for trace in traces])
    fig.update_layout(legend=legend, margin={"l": LEFT, "r": 26, "t": top + 24, "b": BOTTOM}, showlegend=True)
    return theme.finish(fig, "joint_spectrum", _alt(table, kept), HEIGHT + top, present, str(last))


def _points(rows: pd.DataFrame, name: str, color: str) -> Trace:
    return scatter(
        x=rows["direction"].to_numpy(np.float32), y=rows["value"].to_numpy(np.float32), mode="markers", name=name,
        legendgroup=name, marker={"color": color, "size": 5, "symbol": "circle" if name == KEPT else "x"},
        text=[_hover(row) for row in rows.to_dict("records")], hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip


def _hover(row: dict[Any, Any]) -> str:
    return (
        f"<b>direction {count(row['direction'])}</b><br>singular value {real(row['value'])}, {percent(row['share'])} "
        f"of the largest<br>{percent(row['energy'])} of the energy up to here"
    )


def _label(limit: float, rank_tol: float) -> dict[str, Any]:
    return {
        "text": f"rank cut, {power(rank_tol)} of the largest", "x": 0, "xref": "paper", "xanchor": "left",
        "y": float(np.log10(limit)), "yref": "y", "yanchor": "bottom", "showarrow": False,
        "font": {"size": theme.SMALL, "color": theme.INK},
    }  # fmt: skip


def _alt(table: pd.DataFrame, kept: pd.Series[bool]) -> str:
    energy = float(table["energy"][kept].max()) if kept.any() else 0.0
    half = int((table["energy"] < 0.5).sum()) + 1
    return (
        f"Singular values of {plural(len(table), 'direction')}. The rank cut keeps {count(int(kept.sum()))} with "
        f"{percent(energy, 2)} of the energy; half of it lies in the first {count(half)}."
    )
