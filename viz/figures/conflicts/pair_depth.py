"""One pair of experts, tensor by tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order, one_of
from viz.drawing import Drawing, Trace, scatter
from viz.parts import depth, legends
from viz.text import clean_text, count, identifier, layer_name, percent, plural, role_name, safe_text, short_name

VALUES = {
    "cosine": "Cosine of the task vectors",
    "conflict": "Share with other signs,<br>of entries that both keep",
    "overlap": "Shared entries (Jaccard index)",
}
BAND, CHANCE = "All pairs, least to most", "Independent experts"
HEIGHT, BOTTOM, LEFT = 330, 56, 84


@chart(
    title="One pair by depth",
    question="Where in the network do these two agree?",
    columns=("tensor", "order", "section", "role", "part", "value", "chance", "whole", "low", "high"),
    optional=("numel",),
    rows=("tensor",),
    picks=("tensor",),
    empty="There is no tensor to compare.",
)
def pair_depth(
    table: pd.DataFrame,
    *,
    value: str = "cosine",
    pair: tuple[str, str] = ("first", "second"),
    selected: str | None = None,
    present: bool = False,
) -> go.Figure:
    """A point for each tensor, colored by role, a line for whole blocks, and the range over all pairs behind them.

    tensor, order (model order), section, role, part, value (of this pair), chance (of independent experts), whole
    (value of all the section's tensors as one), low and high (over all pairs), numel (scalars). ``value`` names the
    number, ``pair`` the experts; ``selected`` is the marked tensor.
    """
    one_of("value", value, tuple(VALUES))
    columns = depth.Columns.of(table)
    rows = columns.tensors
    finite = np.isfinite(rows["value"].to_numpy(np.float64))
    if not finite.any():
        return theme.notice("pair_depth", "Nothing to draw: no tensor of these two can be compared.", present)
    drawn = rows[finite]
    roles = in_order(drawn["role"])
    fig = Drawing([
        _band(rows),
        _line(rows, "chance", CHANCE, {"color": theme.INK, "width": 1.4, "dash": "dash"}),
        _line(rows, "whole", "Whole block", {"color": theme.INK, "width": 2}),
        *(_points(drawn[drawn["role"] == role], role, value) for role in roles),
    ])  # fmt: skip
    _lay_out(fig, columns, selected, value)
    names = [BAND, CHANCE, "Whole block", *map(role_name, roles)]
    legend, top = legends.above(names)
    fig.update_layout(legend=legend, margin={"l": LEFT, "r": 26, "t": top + 30, "b": BOTTOM})
    alt = _alt(drawn, pair, value)
    return theme.finish(fig, "pair_depth", alt, HEIGHT + top, present, f"{value}:{len(columns.names)}")


def _band(rows: pd.DataFrame) -> Trace:
    """The band from the lowest to the highest pair, as one closed outline of steps."""
    finite = rows[np.isfinite(rows["low"].to_numpy(np.float64))]
    edges = np.stack([finite.index - 0.5, finite.index + 0.5], axis=1).ravel()
    low, high = (np.repeat(finite[end].to_numpy(np.float64), 2) for end in ("low", "high"))
    x, y = (np.concatenate([there, back[::-1]]).astype(np.float32) for there, back in ((edges, edges), (low, high)))
    return scatter(
        x=x, y=y, mode="lines", line={"width": 0}, fill="toself", fillcolor=theme.GRID, hoverinfo="skip",
        name=BAND, legendgroup=BAND, meta={"steps": True},
    )  # fmt: skip


def _line(rows: pd.DataFrame, column: str, name: str, line: dict[str, Any]) -> Trace:
    """A line with a step for every tensor."""
    finite = rows[np.isfinite(rows[column].to_numpy(np.float64))]
    x = np.stack([finite.index - 0.5, finite.index + 0.5], axis=1).ravel()
    return scatter(
        x=x.astype(np.float32), y=np.repeat(finite[column].to_numpy(np.float64), 2).astype(np.float32), mode="lines",
        line=line, hoverinfo="skip", name=name, legendgroup=name, meta={"numbers": True, "steps": True},
    )  # fmt: skip


def _points(rows: pd.DataFrame, role: str, value: str) -> Trace:
    color = theme.ROLE_COLORS.get(role, theme.FADED)
    symbol = theme.SYMBOLS[list(theme.ROLE_COLORS).index(role)] if role in theme.ROLE_COLORS else "circle"
    return scatter(
        x=rows.index.to_numpy(np.float32), y=rows["value"].to_numpy(np.float32), mode="markers",
        name=legends.entry(role_name(role)), legendgroup=safe_text(f"role {role}"),
        marker={"color": color, "symbol": symbol, "size": 8, "line": theme.edge(0.8), "opacity": 1},
        unselected={"marker": {"opacity": 1}}, customdata=[[identifier(name)] for name in rows["tensor"]],
        text=[_hover(row, value) for row in rows.to_dict("records")], hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip


def _number(number: float, value: str) -> str:
    if not np.isfinite(number):
        return "—"
    return f"{number:.3f}".replace("-", "−") if value == "cosine" else percent(number)


def _hover(row: dict[Any, Any], value: str) -> str:
    numel = f", {count(row['numel'])} scalars" if "numel" in row else ""
    lines = [
        f"<b>{short_name(row['tensor'])}</b>",
        f"{layer_name(row)}{numel}",
        f"{value} {_number(row['value'], value)}; "
        f"all pairs {_number(row['low'], value)} to {_number(row['high'], value)}",
        f"the whole section {_number(row['whole'], value)}; by chance {_number(row['chance'], value)}",
    ]
    return "<br>".join(lines)


def _lay_out(fig: Drawing, columns: depth.Columns, selected: str | None, value: str) -> None:
    shapes = columns.separators(theme.GRID, 1)
    if (place := columns.place(selected)) is not None:
        shapes.append({
            "type": "rect", "xref": "x", "yref": "y domain", "x0": place - 0.5, "x1": place + 0.5, "y0": 0, "y1": 1,
            "line": {"color": theme.ACCENT, "width": 2}, "name": "selected",
        })  # fmt: skip
    fig.update_xaxes(**columns.axis())
    percents = {} if value == "cosine" else {"tickformat": ".0%", "rangemode": "tozero"}
    fig.update_yaxes(title={"text": VALUES[value]}, **percents)
    fig.update_layout(shapes=shapes, annotations=columns.end_labels())


def _alt(rows: pd.DataFrame, pair: tuple[str, str], value: str) -> str:
    values = rows["value"].to_numpy(np.float64)
    ends = [(word, int(at)) for word, at in (("most", values.argmax()), ("least", values.argmin()))]
    extremes = [f"{word} in {clean_text(rows['tensor'].iloc[at])}, {_number(values[at], value)}" for word, at in ends]
    first, second = (clean_text(name, 40) for name in pair)
    return f"{value.capitalize()} of {first} and {second} in {plural(len(rows), 'tensor')}: {'; '.join(extremes)}."
