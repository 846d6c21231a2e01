"""Over whole data sets: at which depth answers turn, part from the reference's, or are right when read out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order, one_of
from viz.drawing import Drawing, Trace, scatter
from viz.parts import legends
from viz.parts.depth import BLOCKS_PASSED
from viz.text import clean_text, count, percent, plural, safe_text

VALUES = {  # -> title of the axis, and the same in a sentence
    "turns": ("Images whose final<br>answer stays from here (%)", "images whose final answer stays from there"),
    "parts": ("Images that part from<br>the reference here (%)", "images that part from the reference's answer there"),
    "accuracy": ("Accuracy of what<br>is read out here (%)", "accuracy of what is read out there"),
}
EVERY: Mapping[str, str] = {}  # the axes of a figure with one panel
REFERENCE = "reference"  # the kind of row that is drawn dashed
HEIGHT, BOTTOM, LEFT = 340, 56, 84
APART = 0.055  # of a unit of depth between the marks of two lines, so that their intervals can be told apart


@chart(
    title="Answers by depth over a data set",
    question="At which depth is the answer decided?",
    columns=("run", "label", "kind", "depth", "share"),
    optional=("low", "high", "n"),
    rows=("run", "depth"),
    empty="Answers by depth have not been measured of any run.",
)
def data_set_depths(
    table: pd.DataFrame, *, value: str = "turns", runs: list[str] | None = None, over: str = "", present: bool = False
) -> go.Figure:
    """A line for each run over depth, with intervals.

    run (id), label, kind ("run", or "reference" for a dashed line), depth (0: before block 0; b: after b blocks), share
    (a fraction), low and high (its interval), n (images). ``value`` says of what; ``runs`` is the full ordered list
    that fixes the colors; ``over`` names the images in the alt text.
    """
    one_of("value", value, tuple(VALUES))
    table = table.assign(run=table["run"].astype(str))[np.isfinite(table["share"].to_numpy(np.float64))]
    if table.empty:
        return theme.notice("data_set_depths", "Nothing to draw: no depth has a share.", present)
    names = sorted(in_order(table["run"]), key=lambda name: _kind(table, name) == REFERENCE)
    merges = [name for name in names if _kind(table, name) != REFERENCE]
    looks = theme.looks(runs or merges)
    fig = Drawing()
    for place, name in enumerate(names):
        rows = table[table["run"] == name].sort_values("depth")
        is_reference = _kind(table, name) == REFERENCE
        look = theme.KINDS["pretrained"] if is_reference else looks.get(name, theme.KINDS["merge"])
        texts = [hover(row, before=False) for row in rows.to_dict("records")]
        fig.add_trace(line(rows, look, APART * (place - (len(names) - 1) / 2), texts, dash=is_reference))
    last = int(table["depth"].max())
    labels = table.drop_duplicates("run").set_index("run")["label"]
    legend, top = legends.above([labels[name] for name in names])
    fig.update_xaxes(**axis(list(map(str, range(last + 1))), BLOCKS_PASSED))
    fig.update_yaxes(title={"text": VALUES[value][0]}, tickformat=".0%", rangemode="tozero")
    fig.update_layout(legend=legend, margin={"l": LEFT, "r": 24, "t": top + 14, "b": BOTTOM})
    return theme.finish(fig, "data_set_depths", _alt(table, names, value, over), HEIGHT + top, present, value)


def axis(labels: list[str], title: str) -> dict[str, Any]:
    """Settings of an axis with one tick for each depth."""
    return {
        "title": {"text": title}, "tickmode": "array", "tickvals": list(range(len(labels))), "ticktext": labels,
        "range": [-0.35, len(labels) - 0.65], "tickangle": 0, "showgrid": False,
    }  # fmt: skip


def line(
    rows: pd.DataFrame,
    look: theme.Look,
    shift: float,
    texts: list[str],
    *,
    dash: bool = False,
    axes: Mapping[str, str] = EVERY,
) -> Trace:
    """A run's shares over depth as a line, with the intervals where the table has them."""
    share = rows["share"].to_numpy(np.float64)
    bars: dict[str, Any] = {}
    if {"low", "high"} <= set(rows):
        ends = [np.nan_to_num(np.abs(rows[end].to_numpy(np.float64) - share)) for end in ("high", "low")]
        bars["error_y"] = {
            "array": ends[0].astype(np.float32), "arrayminus": ends[1].astype(np.float32), "symmetric": False,
            "width": 3, "thickness": 1.2, "color": look.color,
        }  # fmt: skip
    return scatter(
        x=(rows["depth"] + shift).to_numpy(np.float32), y=share.astype(np.float32), mode="lines+markers",
        name=legends.entry(rows["label"].iloc[0]), legendgroup=safe_text(f"run {rows['run'].iloc[0]}"),
        line={"color": look.color, "width": 1.8, "dash": "dash" if dash else "solid"},
        marker={"symbol": look.symbol, "color": look.color, "size": 8, "line": theme.edge(0.8)},
        text=texts, hovertemplate="%{text}<extra></extra>", **bars, **axes,
    )  # fmt: skip


def hover(row: dict[Any, Any], *, before: bool, last: int = -1) -> str:
    """Hover text of a share, with the place: ``before`` a block (the ``last`` one is the output), or its depth."""
    depth = int(row["depth"])
    place = ("before the output" if depth == last else f"before block {depth}") if before else f"depth {depth}"
    text = f"<b>{safe_text(row['label'])}</b>, {place}<br>{percent(row['share'])}"
    if np.isfinite(row.get("low", np.nan)) and np.isfinite(row.get("high", np.nan)):
        text += f" ({percent(row['low'])} to {percent(row['high'])})"
    return text + (f"<br>of {count(row['n'])} images" if np.isfinite(row.get("n", np.nan)) else "")


def _kind(table: pd.DataFrame, name: str) -> str:
    return str(table.loc[table["run"] == name, "kind"].iloc[0])


def _alt(table: pd.DataFrame, names: list[str], value: str, over: str) -> str:
    parts = []
    for name in names[:3]:
        rows = table[table["run"] == name]
        top = rows.iloc[int(rows["share"].to_numpy(np.float64).argmax())]
        parts.append(f"{clean_text(top['label'], 40)} is highest at depth {top['depth']:.0f}, "
                     f"{percent(top['share'])}")  # fmt: skip
    of = f", {clean_text(over, 60)}" if over else ""
    return f"Share by depth of {plural(len(names), 'model')}: {VALUES[value][1]}{of}. {'; '.join(parts)}."
