"""Tensors ranked by how much they drift against tensors ranked by what putting them back gives."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order
from viz.drawing import Drawing, Trace, scatter
from viz.parts import legends
from viz.text import identifier, percent, plural, role_name, safe_text, short_name

HEIGHT, BOTTOM, LEFT = 430, 56, 62


@chart(
    title="Drift and putting back",
    question="Does what drifts most help most if it is put back?",
    columns=("tensor", "section", "role", "part", "drift", "change", "low", "high"),
    optional=("drift_rank", "change_rank"),
    rows=("tensor",),
    picks=("tensor",),
    empty="No tensor has both: measured drift, and what putting it back gives.",
)
def drift_and_put_back(
    table: pd.DataFrame,
    *,
    correlation: tuple[float, int] | None = None,
    over: str = "",
    selected: str | None = None,
    present: bool = False,
) -> go.Figure:
    """A point for each tensor, both ranks from 1 (drifts most, helps most); open where the interval holds zero.

    tensor, section, role (color and symbol), part, drift (share of the layer's output, a mean over tasks), change (of
    accuracy when it is put back, a fraction) with low and high of 95 %, drift_rank and change_rank (mean ranks of equal
    numbers; computed if they are missing). ``correlation`` is Spearman's ρ and the number of tensors; ``over`` says on
    what accuracy is measured; ``selected`` is circled.
    """
    table = table[np.isfinite(table[["drift", "change"]].to_numpy(np.float64)).all(axis=1)]
    if table.empty:
        return theme.notice("drift_and_put_back", "Nothing to draw: no tensor has both numbers.", present)
    ranks = {f"{name}_rank": table[name].astype(float).rank(ascending=False) for name in ("drift", "change")}
    table = table.assign(role=table["role"].astype(str), tensor=table["tensor"].astype(str), **ranks)
    roles, fig = in_order(table["role"]), Drawing()
    for place, role in enumerate(roles):
        fig.add_trace(_points(table[table["role"] == role], role, theme.SYMBOLS[place % 8]))
    if selected in set(table["tensor"]):
        fig.add_trace(_circle(table[table["tensor"] == selected]))
    names = [role_name(role) for role in roles]
    legend, top = legends.above(names, "Kind ")
    room = 0.03 * len(table) + 0.5
    ends = [1 - room, len(table) + room]
    where = f", {safe_text(over)}" if over else ""
    fig.update_xaxes(title={"text": "Rank by drift of the layer by itself (1 drifts most)"}, range=ends)
    fig.update_yaxes(
        title={"text": f"Rank by accuracy gained when put back{where}<br>(1 gains most)"}, range=ends[::-1]
    )
    fig.update_layout(
        legend=legend, margin={"l": LEFT + theme.LINE_HEIGHT, "r": 26, "t": top + 34, "b": BOTTOM},
        annotations=[theme.caption(_coefficient(correlation), 1)],
    )  # fmt: skip
    alt = _alt(table, correlation)
    return theme.finish(fig, "drift_and_put_back", alt, HEIGHT + top, present)


def _coefficient(correlation: tuple[float, int] | None) -> str:
    if correlation is None or not math.isfinite(correlation[0]):
        return "Open marks: the 95% interval holds zero"
    rho, n = correlation
    return f"Spearman ρ = {rho:.2f}, n = {plural(n, 'tensor')}. Open marks: the 95% interval holds zero"


def _points(rows: pd.DataFrame, role: str, symbol: str) -> Trace:
    clear = (rows["low"].astype(float) > 0) | (rows["high"].astype(float) < 0)
    color = theme.ROLE_COLORS.get(role, theme.FADED)
    return scatter(
        x=rows["drift_rank"].to_numpy(np.float32), y=rows["change_rank"].to_numpy(np.float32), mode="markers",
        name=legends.entry(role_name(role)),
        marker={
            "symbol": [symbol if shown else f"{symbol}-open" for shown in clear], "color": color, "size": 10,
            "line": {"width": 1.6, "color": color},
        },
        unselected={"marker": {"opacity": 1}},
        customdata=[[identifier(tensor)] for tensor in rows["tensor"]],
        text=[_hover(row) for row in rows.to_dict("records")], hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip


def _circle(rows: pd.DataFrame) -> Trace:
    return scatter(
        x=rows["drift_rank"].to_numpy(np.float32), y=rows["change_rank"].to_numpy(np.float32), mode="markers",
        name="Selected", showlegend=False, hoverinfo="skip",
        marker={"symbol": "circle-open", "size": 20, "color": theme.ACCENT, "line": {"width": 3}},
    )  # fmt: skip


def _hover(row: dict[Any, Any]) -> str:
    low, high = (f"{100 * row[end]:+.1f}" if math.isfinite(row[end]) else "—" for end in ("low", "high"))
    return (
        f"<b>{short_name(row['tensor'])}</b><br>drift {percent(row['drift'], 2)} of its output, rank "
        f"{row['drift_rank']:g}<br>put back {100 * row['change']:+.1f} points ({low} to {high}), rank "
        f"{row['change_rank']:g}<br>{safe_text(row['section'])}, {safe_text(row['part'])}"
    )


def _alt(table: pd.DataFrame, correlation: tuple[float, int] | None) -> str:
    words = f"{plural(len(table), 'tensor')}, ranked by drift and by what putting them back gains."
    if correlation is None or not math.isfinite(correlation[0]):
        return words
    return f"{words} The ranks correlate with Spearman {correlation[0]:.2f}."
