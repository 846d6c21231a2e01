"""How accuracy changes when a tensor or a whole block is put back to pretrained: measured, with intervals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order
from viz.drawing import heatmap
from viz.parts import depth
from viz.text import clean_text, count, layer_name, percent, plural, safe_text, short_name

FADE = [[0, "rgba(255,255,255,0)"], [1, "rgba(255,255,255,0.72)"]]
UNKNOWN = "not measured yet"


@chart(
    title="Put back",
    question="What would putting a layer back to pretrained gain or lose?",
    columns=("row", "title", "tensor", "order", "section", "role", "part", "change", "low", "high", "n"),
    optional=("before", "after"),
    rows=("row", "tensor"),
    picks=("row", "tensor"),
    empty="Nothing was put back yet.",
)
def revert_map(
    table: pd.DataFrame,
    *,
    selected: tuple[str | None, str | None] = (None, None),
    limits: tuple[float, float] | None = None,
    present: bool = False,
) -> go.Figure:
    """A heat map, averages, whole blocks and tasks by tensors in forward order; faded where the interval holds zero.

    row (id) and title of an average, a task or a whole block's average, tensor, order (model order), section, role,
    part, change (of accuracy, a fraction, NaN where it is not measured yet) with low and high of 95 %, before and after
    (accuracies), n (images). In a row of whole blocks every tensor has its block's numbers. ``selected`` outlines a
    (row, tensor); ``limits`` fixes the color range in points, so that two figures compare.
    """
    table = table.assign(points=100 * table["change"].astype(float))
    titles = dict(zip(table["row"].astype(str), table["title"], strict=True))
    scale = depth.Scale("accuracy,<br>points", log=False, limits=limits, diverging=True)
    rows = [titles[row] for row in in_order(table["row"])]
    fig, columns = depth.heat_map(table, "row", "points", scale, _hover, selected, rows)
    fig.update_yaxes(title={"text": "Accuracy on"})
    faded = _faded(table, in_order(table["row"]), columns.names)
    veil = heatmap(
        z=faded, zmin=0, zmax=1, colorscale=FADE, showscale=False, ygap=1, name="No significant difference",
        hoverinfo="skip",
    )  # fmt: skip
    fig.data.insert(1, veil)  # below what takes clicks
    fig.update_layout(annotations=[*fig.annotations, theme.caption("Faded: the 95% interval holds zero", 1)])
    alt = _alt(table, len(columns.names))
    return theme.finish(fig, "revert_map", alt, depth.height(len(rows)), present, str(len(columns.names)))


def _faded(table: pd.DataFrame, rows: list[str], tensors: list[str]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """1 where the interval holds zero (rows, tensors)."""
    shown = (table["low"].astype(float) > 0) | (table["high"].astype(float) < 0) | table["change"].isna()
    cells = pd.Series(~shown.to_numpy(), index=pd.MultiIndex.from_frame(table[["row", "tensor"]].astype(str)))
    pairs = pd.MultiIndex.from_product([rows, tensors])
    return cells.reindex(pairs).to_numpy(bool).astype(np.uint8).reshape(len(rows), len(tensors))


def _hover(row: dict[Any, Any]) -> str:
    name = f"<b>{short_name(row['tensor'])}</b><br>{safe_text(row['title'])}: "
    where = f"<br>{layer_name(row)}"
    if not math.isfinite(row["change"]):
        return f"{name}{UNKNOWN}{where}"
    text = f"{name}{_points(row['change'])} points, {_points(row['low'])} to {_points(row['high'])}"
    if math.isfinite(row.get("before", math.nan)) and math.isfinite(row.get("after", math.nan)):
        text += f"<br>from {percent(row['before'])} to {percent(row['after'])}"
    if not (row["low"] > 0 or row["high"] < 0):
        text += f"<br>no significant difference with n = {count(row['n'])}"
    else:
        text += f"<br>n = {count(row['n'])} images"
    return text + where


def _points(share: float) -> str:
    """0.107 as "+10.7"; "—" where there is no number."""
    return f"{100 * share:+.1f}" if math.isfinite(share) else "—"


def _alt(table: pd.DataFrame, tensors: int) -> str:
    words = f"Change of accuracy when one of {plural(tensors, 'tensor')} is put back to pretrained."
    measured = table[np.isfinite(table["change"].to_numpy(np.float64))]
    if measured.empty:
        return f"{words} Nothing is measured yet."
    most = measured.loc[measured["change"].idxmax()]
    clear = int(((measured["low"] > 0) | (measured["high"] < 0)).sum())
    return (
        f"{words} The largest gain is {_points(most['change'])} points, {clean_text(most['title'])}, with "
        f"{clean_text(most['tensor'])}. The interval leaves zero out in {clear:,} of {len(measured):,} cells."
    )
