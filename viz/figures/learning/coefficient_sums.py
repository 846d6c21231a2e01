"""The sum of all experts' coefficients, layer by layer (LwPTV, Fig. 8)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order
from viz.drawing import Drawing, Trace, scatter
from viz.parts import depth, legends
from viz.text import clean_text, identifier, plural, real, role_name, safe_text, short_name

HEIGHT, BOTTOM, LEFT = 350, 56, 72


@chart(
    title="Summed coefficients by depth",
    question="Where in the network do the experts' coefficients add up to most?",
    columns=("run", "label", "tensor", "order", "section", "role", "part", "total"),
    rows=("run", "tensor"),
    picks=("tensor",),
    empty="No run has learned a coefficient for each tensor.",
)
def coefficient_sums(
    table: pd.DataFrame, *, runs: list[str] | None = None, selected: str | None = None, present: bool = False
) -> go.Figure:
    """A line of steps for each run over the tensors in forward order; a pruned tensor is a gap.

    run (id), label, tensor, order (model order), section, role, part (kind of layer), total (Σ over experts of λ, NaN
    for a tensor that was pruned). ``runs`` is the full ordered list that fixes the colors; ``selected`` is the marked
    tensor.
    """
    table = table.assign(run=table["run"].astype(str), tensor=table["tensor"].astype(str))
    finite = np.isfinite(table["total"].to_numpy(np.float64))
    if not finite.any():
        return theme.notice("coefficient_sums", "Nothing to draw: every tensor was pruned.", present)
    columns, names = depth.Columns.of(table), in_order(table["run"])
    places = {name: at for at, name in enumerate(columns.names)}
    look, drawn = theme.looks(runs or names), table[finite]
    fig = Drawing()
    for name in names:
        rows = drawn[drawn["run"] == name]
        if len(rows):
            fig.add_trace(_marks(rows, places, look[name]))
    shapes = columns.separators(theme.GRID, 1)
    if (place := columns.place(selected)) is not None:
        shapes.append({
            "type": "rect", "xref": "x", "yref": "y domain", "x0": place - 0.5, "x1": place + 0.5, "y0": 0, "y1": 1,
            "line": {"color": theme.ACCENT, "width": 2}, "name": "selected",
        })  # fmt: skip
    legend, top = legends.above([str(label) for label in table.drop_duplicates("run")["label"]])
    fig.update_xaxes(**columns.axis())
    fig.update_yaxes(title={"text": "Sum of the coefficients<br>over the experts"})
    fig.update_layout(
        legend=legend, shapes=shapes, annotations=columns.end_labels(),
        margin={"l": LEFT, "r": 26, "t": top + 20, "b": BOTTOM},
    )  # fmt: skip
    return theme.finish(fig, "coefficient_sums", _alt(drawn, names), HEIGHT + top, present, str(len(columns.names)))


def _marks(rows: pd.DataFrame, places: dict[str, int], look: theme.Look) -> Trace:
    """A run's marks in forward order; a line joins those of neighboring tensors."""
    rows = rows.assign(_place=rows["tensor"].map(places)).sort_values("_place", kind="stable")
    return scatter(
        x=rows["_place"].to_numpy(np.float32), y=rows["total"].to_numpy(np.float32), mode="lines+markers",
        name=legends.entry(rows["label"].iloc[0]), legendgroup=safe_text(f"run {rows['run'].iloc[0]}"),
        line={"color": look.color, "width": 1, "dash": "dot"}, unselected={"marker": {"opacity": 1}},
        marker={"symbol": look.symbol, "color": look.color, "size": 7, "line": theme.edge(0.8), "opacity": 1},
        customdata=[[identifier(name)] for name in rows["tensor"]],
        text=[_hover(row) for row in rows.to_dict("records")], hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip


def _hover(row: dict[Any, Any]) -> str:
    return (
        f"<b>{short_name(row['tensor'])}</b><br>{safe_text(row['label'])}: {real(row['total'])} in sum<br>"
        f"{safe_text(row['section'])}, {safe_text(row['part'])} ({safe_text(role_name(row['role']))})"
    )


def _alt(drawn: pd.DataFrame, names: list[str]) -> str:
    most = drawn.iloc[int(drawn["total"].to_numpy().argmax())]
    words = f"Summed coefficients of {plural(len(names), 'run')} in {plural(drawn['tensor'].nunique(), 'tensor')}."
    whose = f"{clean_text(most['label'], 40)}'s in {clean_text(most['tensor'])}"
    return f"{words} The largest, {real(most['total'])}, is {whose}."
