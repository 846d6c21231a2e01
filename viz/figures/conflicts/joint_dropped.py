"""How much of every basis vector pruning drops, with and without renormalization (DRM, Fig. 3)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order
from viz.drawing import Drawing, Trace, scatter
from viz.parts import legends
from viz.text import clean_text, count, percent, safe_text

WITH, WITHOUT = "renormalized", "without renormalization"
LOOKS = {WITHOUT: theme.PALETTE[1], WITH: theme.PALETTE[0]}  # the smoother line is drawn over the other
HEIGHT, BOTTOM, LEFT = 320, 56, 76
MARKED = 200  # points up to which each has a mark


@chart(
    title="Entries dropped per basis vector",
    question="Does pruning drop some entries of every basis vector, or all entries of some vectors?",
    columns=("direction", "expert", "renorm", "dropped"),
    rows=("direction", "expert", "renorm"),
    empty="No expert changed this layer.",
)
def joint_dropped(
    table: pd.DataFrame, *, expert: str | None = None, ratio: float = 0.5, present: bool = False
) -> go.Figure:
    """A line with renormalization and one without, over the directions of one expert.

    direction (from 1, largest singular value first), expert, renorm (bool), dropped (share of the vector's entries).
    ``expert`` is the one drawn, the first if None; ``ratio`` is the share pruned from the whole matrix.
    """
    experts = in_order(table["expert"])
    expert = expert if expert in experts else experts[0]
    rows = table[table["expert"].astype(str) == expert]
    traces: list[Trace] = []
    means = {}
    for name, color in LOOKS.items():
        line_rows = rows[rows["renorm"].astype(bool) == (name == WITH)].sort_values("direction")
        if len(line_rows):
            means[name] = float(line_rows["dropped"].mean())
            traces.append(_line(line_rows, f"{name}, mean {percent(means[name])}", color, name == WITH))
    last = float(rows["direction"].max())
    fig = Drawing(traces)
    fig.add_shape(theme.across(ratio, {"color": theme.INK, "width": 1.2, "dash": "dash"}))
    fig.update_xaxes(
        title={"text": f"Basis vector of {safe_text(expert, 24)}, largest singular value first"},
        range=[1 - 0.01 * last, last + 0.01 * last + 0.5],
    )  # fmt: skip
    fig.update_yaxes(title={"text": "Entries dropped"}, tickformat=".0%", range=[-0.02, 1.02])
    legend, top = legends.above([trace["name"] for trace in traces])
    fig.update_layout(legend=legend, margin={"l": LEFT, "r": 26, "t": top + 24, "b": BOTTOM}, showlegend=True)
    return theme.finish(fig, "joint_dropped", _alt(rows, expert, ratio), HEIGHT + top, present)


def _line(rows: pd.DataFrame, name: str, color: str, over: bool) -> Trace:
    return scatter(
        x=rows["direction"].to_numpy(np.float32), y=rows["dropped"].to_numpy(np.float32),
        mode="lines+markers" if len(rows) <= MARKED else "lines", name=name, legendgroup=name,
        line={"color": color, "width": 1.6 if over else 1.2},
        marker={"size": 4, "symbol": "circle" if over else "diamond", "color": color},
        text=[_hover(row) for row in rows.to_dict("records")], hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip


def _hover(row: dict[Any, Any]) -> str:
    how = WITH if row["renorm"] else WITHOUT
    return f"<b>basis vector {count(row['direction'])}</b>, {how}<br>{percent(row['dropped'])} of its entries dropped"


def _alt(rows: pd.DataFrame, expert: str, ratio: float) -> str:
    words = f"Entries dropped per basis vector of {clean_text(expert, 40)} when {percent(ratio, 0)} of all are pruned:"
    ranges = []
    for name, group in rows.groupby(rows["renorm"].astype(bool)):
        low, high = (percent(float(group["dropped"].agg(end))) for end in ("min", "max"))
        ranges.append(f"{low} to {high} {WITH if name else WITHOUT}")
    return f"{words} {'; '.join(ranges)}."
