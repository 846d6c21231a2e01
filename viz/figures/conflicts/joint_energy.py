"""How the energy of each expert's matrix is spread over the directions of the joint space."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order, one_of
from viz.drawing import Drawing, heatmap
from viz.parts import depth
from viz.parts.cells import click_targets
from viz.text import clean_text, percent, plural, real, safe_text

SCALES = {
    "norm": depth.Scale("row norm", log=False),
    "energy": depth.Scale("share of<br>its energy", percent=True),
    "cumulative": depth.Scale("energy<br>so far", log=False, limits=(0.0, 1.0), percent=True),
}


@chart(
    title="Energy in the joint space",
    question="Which experts' changes lie in which shared directions?",
    columns=("expert", "first", "last", "norm", "energy", "cumulative"),
    rows=("expert", "first"),
    picks=("expert",),
    empty="No expert changed this layer.",
)
def joint_energy(
    table: pd.DataFrame, *, value: str = "norm", selected: str | None = None, present: bool = False
) -> go.Figure:
    """A heat map, experts by directions, largest singular value first.

    expert, first and last (directions of a column, from 1), norm (mean norm of the expert's part of those orthonormal
    rows, before renormalization), energy (share of the expert's squared entries there) and cumulative (up to there).
    ``value`` says which is drawn; ``selected`` outlines an expert.
    """
    scale = SCALES[one_of("value", value, tuple(SCALES))]
    experts, starts = in_order(table["expert"]), sorted(table["first"].unique())
    cells = table.set_index([table["expert"].astype(str), "first"]).reindex(
        pd.MultiIndex.from_product([experts, starts])
    )
    values = cells[value].to_numpy(np.float64).reshape(len(experts), len(starts))
    z, colors = depth.colored(np.where(np.isfinite(values), values, 0.0), scale)
    heat = heatmap(
        z=z, colorscale=theme.SEQUENTIAL, ygap=1, name=scale.title.replace("<br>", " "), hoverinfo="skip", **colors
    )
    texts = [_hover(row) for row in cells.assign(first=cells.index.get_level_values(1)).to_dict("records")]
    bars = click_targets(experts, [str(start) for start in starts], texts, "Cells")
    fig = Drawing([heat, bars | {"customdata": [name[:1] for name in bars["customdata"]]}])
    _lay_out(fig, table, experts, [int(start) for start in starts], selected)
    return theme.finish(fig, "joint_energy", _alt(table, experts), depth.height(len(experts)), present, value)


def _lay_out(fig: Drawing, table: pd.DataFrame, experts: list[str], starts: list[int], selected: str | None) -> None:
    labels = [safe_text(expert, 24) for expert in experts]
    last, width = int(table["last"].max()), float((table["last"] - table["first"]).max() + 1)
    marks = [tick for tick in theme.ticks(1, max(last, 2))["tickvals"] if 1 <= tick <= last and tick == round(tick)]
    joined = "" if width <= 1 else f" (columns join up to {int(width)})"
    fig.update_xaxes(
        title={"text": f"Direction, largest first{joined}"}, showgrid=False, tickmode="array",
        tickvals=[float(np.interp(tick, starts, range(len(starts)))) for tick in marks],
        ticktext=[f"{tick:g}" for tick in marks], range=[-0.5, len(starts) - 0.5],
    )  # fmt: skip
    fig.update_yaxes(
        title={"text": "Expert"}, tickmode="array", tickvals=list(range(len(experts))), ticktext=labels,
        range=[len(experts) - 0.5, -0.5], showgrid=False, fixedrange=True,
    )  # fmt: skip
    shapes = []
    if selected in experts:
        row = experts.index(selected)
        shapes.append({
            "type": "rect", "x0": -0.5, "x1": len(starts) - 0.5, "y0": row - 0.5, "y1": row + 0.5, "name": "selected",
            "line": {"color": theme.ACCENT, "width": 2},
        })  # fmt: skip
    margin = {"l": max(*map(theme.text_width, labels), 40) + 38, "r": depth.RIGHT, "t": depth.TOP, "b": depth.BOTTOM}
    fig.update_layout(shapes=shapes, margin=margin, showlegend=False, barmode="overlay")


def _hover(row: dict[Any, Any]) -> str:
    first, last = int(row["first"]), int(row["last"])
    where = f"direction {first}" if first == last else f"directions {first} to {last}"
    return (
        f"<b>{safe_text(row['expert'])}, {where}</b><br>row norm {real(row['norm'])}<br>"
        f"{percent(row['energy'], 2)} of its energy, {percent(row['cumulative'])} up to here"
    )


def _alt(table: pd.DataFrame, experts: list[str]) -> str:
    half = {expert: int((rows["cumulative"] < 0.5).sum()) for expert, rows in table.groupby("expert", sort=False)}
    words = f"Energy of {plural(len(experts), 'expert')} along the shared directions."
    if not np.isfinite(table["energy"].to_numpy(np.float64)).any():
        return words
    soonest = min(experts, key=lambda expert: half.get(expert, 0))
    top = table[table["first"] == table["first"].min()]
    most = top.loc[top["norm"].idxmax()]
    return (
        f"{words} The first belongs most to {clean_text(most['expert'], 40)} (row norm {real(most['norm'])}); "
        f"{clean_text(soonest, 40)} gathers half of its energy soonest."
    )
