"""Who wins the election of signs, layer by layer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order, one_of
from viz.drawing import Drawing, Trace, bar, scatter
from viz.parts import depth, legends
from viz.text import clean_text, count, identifier, percent, plural, safe_text, short_name

VALUES = {"survived": "Share of the expert's kept entries that survive", "taken": "Share of all entries that survive"}
HEIGHT, BOTTOM = 300, 56  # px: of the plot, and under it


@chart(
    title="Who wins the election",
    question="Whose entries survive the election of signs, and where?",
    columns=("tensor", "order", "section", "role", "part", "expert", "kept", "won", "survived", "taken"),
    rows=("tensor", "expert"),
    picks=("tensor", "expert"),
    empty="No election was measured for these experts.",
)
def election_layers(
    table: pd.DataFrame,
    *,
    value: str = "survived",
    selected: str | None = None,
    experts: list[str] | None = None,
    present: bool = False,
) -> go.Figure:
    """A line of dots for each expert over layers in forward order, or stacked bars of what survives.

    tensor, order (model order), section, role, part (kind of layer), expert, kept (entries after the trim), won (of
    those, with the elected sign), survived (won / kept), taken (won over that of all experts in the layer). ``value``
    says which of the last two is drawn; ``selected`` outlines a tensor; ``experts`` is the full ordered list that
    fixes the colors.
    """
    title = VALUES[one_of("value", value, tuple(VALUES))]
    columns = depth.Columns.of(table)
    names = in_order(table["expert"])
    look = theme.looks(experts or names)
    traces: list[Trace] = []
    for name in names:
        rows = table[table["expert"].astype(str) == name].set_index("tensor").loc[columns.names].reset_index()
        rows = rows[np.isfinite(rows[value].to_numpy(np.float64))]
        x = np.array([columns.names.index(tensor) for tensor in rows["tensor"]], np.float32)
        traces.append(_trace(rows, x, value, name, look.get(name, theme.KINDS["individual"])))
    legend, top = legends.above(names)
    stacked = value == "taken"
    low, high = float(table[value].min()), float(table[value].max())
    room = 0.08 * (high - low) or 0.05
    fig = Drawing(traces)
    fig.update_xaxes(**columns.axis())
    fig.update_yaxes(
        title={"text": title.replace(" entries", "<br>entries")}, tickformat=".3~%", fixedrange=True,
        range=[0, 1] if stacked else [low - room, high + room],
    )  # fmt: skip
    margin = {"l": 84, "r": 24, "t": top + 12, "b": BOTTOM}
    place = columns.place(selected)
    fig.update_layout(
        legend=legend, margin=margin, barmode="stack", bargap=0.1, annotations=columns.end_labels(),
        shapes=[*columns.separators(theme.GRID, 1), *([] if place is None else [_outline(place)])],
    )  # fmt: skip
    alt = _alt(table, names, columns)
    return theme.finish(fig, "election_layers", alt, HEIGHT + margin["t"] + BOTTOM, present, value)


def _trace(rows: pd.DataFrame, x: Any, value: str, name: str, look: theme.Look) -> Trace:
    shared: dict[str, Any] = {
        "x": x, "y": rows[value].to_numpy(np.float32), "name": legends.entry(name), "legendgroup": legends.entry(name),
        "text": [_hover(row) for row in rows.to_dict("records")], "hovertemplate": "%{text}<extra></extra>",
        "customdata": [[identifier(tensor), identifier(name)] for tensor in rows["tensor"]],
        "unselected": {"marker": {"opacity": 1}},
    }  # fmt: skip
    if value == "taken":
        return bar(
            **shared, marker={"color": look.color, "line": {"color": "white", "width": 0.5}}, textposition="none"
        )
    return scatter(
        **shared, mode="lines+markers", line={"color": look.color, "width": 1},
        marker={"symbol": look.symbol, "color": look.color, "size": 8, "line": theme.edge(0.8), "opacity": 1},
    )  # fmt: skip


def _hover(row: dict[Any, Any]) -> str:
    return (
        f"<b>{safe_text(row['expert'])}</b>, {short_name(row['tensor'])}<br>{count(row['won'])} of "
        f"{count(row['kept'])} kept entries survive: {percent(row['survived'])}<br>"
        f"{percent(row['taken'])} of what survives here"
    )


def _outline(place: int) -> dict[str, Any]:
    return {
        "type": "rect", "xref": "x", "yref": "y domain", "x0": place - 0.5, "x1": place + 0.5, "y0": 0, "y1": 1,
        "line": {"color": theme.ACCENT, "width": 2}, "name": "selected",
    }  # fmt: skip


def _alt(table: pd.DataFrame, names: list[str], columns: depth.Columns) -> str:
    words = f"Elections of signs between {plural(len(names), 'expert')} in {plural(len(columns.names), 'layer')}."
    sums = table.groupby("expert")[["won", "kept"]].sum()
    shares = (sums["won"] / sums["kept"].where(sums["kept"] > 0)).dropna()
    if shares.empty:
        return words
    best, worst = str(shares.idxmax()), str(shares.idxmin())
    return (
        f"{words} Most survives of {clean_text(best)}, {percent(shares[best])}; least of {clean_text(worst)}, "
        f"{percent(shares[worst])}."
    )
