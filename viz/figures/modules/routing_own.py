"""The weight of an image's own expert, block by block or once for the whole model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order
from viz.drawing import Drawing, Trace, scatter
from viz.parts import legends, routing
from viz.text import clean_text, plural, real, safe_text

HEIGHT, BOTTOM, LEFT = 360, 56, 66
SPREAD = 0.55  # share of a block's width over which the tasks' marks are spread


@chart(
    title="Weight of the own expert",
    question="How much do images use the expert of their own task?",
    columns=("task", "title", "block", "weight"),
    optional=("low", "high", "n"),
    rows=("task", "block"),
    empty="No routing was recorded for a task of a merged expert.",
)
def routing_own(table: pd.DataFrame, *, tasks: list[str] | None = None, present: bool = False) -> go.Figure:
    """A mark for each task and block with the range of its images, over the weight that all experts would share.

    task, title, block (number, or missing where one router serves the whole model), weight (of the task's own expert,
    mean over its images), low and high (5th and 95th percentile over images), n (images). ``tasks`` is the full ordered
    list that fixes the colors.
    """
    table = table.assign(task=table["task"].astype(str), block=table["block"].map(routing.block_name))
    drawn = table[np.isfinite(table["weight"].to_numpy(np.float64))]
    if drawn.empty:
        return theme.notice("routing_own", "Nothing to draw: no weight is a number.", present)
    names, blocks = in_order(drawn["task"]), in_order(drawn["block"])
    look = theme.looks(tasks or names)
    titles = dict(zip(drawn["task"], drawn["title"], strict=True))
    fig = Drawing()
    for lane, name in enumerate(names):
        offset = (lane - (len(names) - 1) / 2) * SPREAD / max(len(names) - 1, 1)
        fig.add_trace(_marks(drawn[drawn["task"] == name], blocks, offset, look[name]))
    legend, top = legends.above([titles[name] for name in names])
    fig.update_xaxes(
        title={"text": "Block" if blocks != [routing.MODEL] else "Routed once, before the network"}, tickmode="array",
        tickvals=list(range(len(blocks))), ticktext=[safe_text(block, 16) for block in blocks], showgrid=False,
        range=[-0.5, len(blocks) - 0.5], tickangle=0,
    )  # fmt: skip
    fig.update_yaxes(title={"text": "Weight of the own expert"}, rangemode="tozero")
    fig.update_layout(legend=legend, margin={"l": LEFT, "r": 24, "t": top + 14, "b": BOTTOM})
    return theme.finish(fig, "routing_own", _alt(drawn, titles), HEIGHT + top, present)


def _marks(rows: pd.DataFrame, blocks: list[str], offset: float, look: theme.Look) -> Trace:
    bars = None
    if {"low", "high"} <= set(rows):
        ends = [np.nan_to_num((rows[end] - rows["weight"]).abs().to_numpy(np.float32)) for end in ("high", "low")]
        bars = {
            "type": "data", "symmetric": False, "array": ends[0], "arrayminus": ends[1], "color": look.color,
            "thickness": 1.2, "width": 0,
        }  # fmt: skip
    return scatter(
        x=np.array([blocks.index(block) + offset for block in rows["block"]], np.float32),
        y=rows["weight"].to_numpy(np.float32), mode="markers", name=legends.entry(rows["title"].iloc[0]),
        legendgroup=safe_text(f"task {rows['task'].iloc[0]}"), error_y=bars,
        marker={"symbol": look.symbol, "color": look.color, "size": 9, "line": theme.edge(0.8)},
        text=[_hover(row) for row in rows.to_dict("records")], hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip


def _hover(row: dict[Any, Any]) -> str:
    where = "" if row["block"] == routing.MODEL else f", block {safe_text(row['block'])}"
    text = f"<b>{safe_text(row['title'])}</b>{where}<br>weight of its own expert {row['weight']:.3f}".replace("-", "−")
    if np.isfinite(row.get("low", np.nan)) and np.isfinite(row.get("high", np.nan)):
        text += f"<br>{real(row['low'])} to {real(row['high'])} for nine of ten images".replace("-", "−")
    return text + (f"<br>{row['n']:,.0f} images" if np.isfinite(row.get("n", np.nan)) else "")


def _alt(drawn: pd.DataFrame, titles: dict[str, str]) -> str:
    means = drawn.groupby("task")["weight"].mean()
    words = f"Weight of the own expert of {plural(len(means), 'task')}, {routing.places(drawn)}."
    ends = f"On average it is highest for {clean_text(titles[str(means.idxmax())], 40)}, {means.max():.2f}"
    ends += (
        f", and lowest for {clean_text(titles[str(means.idxmin())], 40)}, {means.min():.2f}" if len(means) > 1 else ""
    )
    return f"{words} {ends}."
