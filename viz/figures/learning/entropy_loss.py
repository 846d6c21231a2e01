"""Entropy, which learning minimizes, against the loss with labels, which it never sees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order
from viz.drawing import Drawing, Trace, scatter
from viz.parts import legends
from viz.text import clean_text, count, identifier, percent, plural, real, safe_text

HEIGHT, BOTTOM, LEFT = 430, 56, 72


@chart(
    title="Entropy against loss",
    question="When does minimizing entropy stop helping?",
    columns=("task", "title", "step", "entropy", "loss"),
    optional=("accuracy", "n"),
    rows=("task", "step"),
    picks=("task", "step"),
    empty="No step of this merge has been measured with labels.",
)
def entropy_loss(
    table: pd.DataFrame, *, tasks: list[str] | None = None, selected: str | None = None, present: bool = False
) -> go.Figure:
    """A path for each task through its measured steps: the first is an open mark, the last a large one.

    task, title, step (updates so far), entropy (mean of the model's predictions, nats), loss (cross-entropy with the
    labels, nats), accuracy (fraction), n (images). Where a path goes left and up, entropy falls while the loss rises.
    ``tasks`` is the full ordered list that fixes the colors; ``selected`` is the task whose path is emphasized.
    """
    table = table.assign(task=table["task"].astype(str)).sort_values("step", kind="stable")
    finite = np.isfinite(table[["entropy", "loss"]].to_numpy(np.float64)).all(axis=1)
    drawn = table[finite]
    if drawn.empty:
        return theme.notice("entropy_loss", "Nothing to draw: no step has both numbers.", present)
    names = in_order(drawn["task"])
    look = theme.looks(tasks or names)
    titles = dict(zip(drawn["task"], drawn["title"], strict=True))
    fig = Drawing([_path(drawn[drawn["task"] == name], look[name], selected in (None, name)) for name in names])
    legend, top = legends.above([titles[name] for name in names])
    fig.update_xaxes(title={"text": "Mean entropy of the predictions (nats)"}, rangemode="tozero")
    fig.update_yaxes(title={"text": "Cross-entropy with the labels (nats)"}, rangemode="tozero")
    fig.update_layout(legend=legend, margin={"l": LEFT, "r": 24, "t": top + 14, "b": BOTTOM})
    return theme.finish(fig, "entropy_loss", _alt(drawn, names, titles), HEIGHT + top, present)


def _path(rows: pd.DataFrame, look: theme.Look, full: bool) -> Trace:
    first, last = rows["step"].min(), rows["step"].max()
    return scatter(
        x=rows["entropy"].to_numpy(np.float32), y=rows["loss"].to_numpy(np.float32), mode="lines+markers",
        name=legends.entry(rows["title"].iloc[0]), legendgroup=safe_text(f"task {rows['task'].iloc[0]}"),
        line={"color": look.color, "width": 1.8}, opacity=1 if full else 0.3, unselected={"marker": {"opacity": 1}},
        marker={
            "symbol": look.symbol, "size": [14 if step == last else 8 for step in rows["step"]],
            "color": ["white" if step == first < last else look.color for step in rows["step"]],
            "line": {"color": look.color if first < last else theme.INK, "width": 1.6},
        },
        customdata=[[identifier(row["task"]), identifier(row["step"])] for row in rows.to_dict("records")],
        text=[_hover(row) for row in rows.to_dict("records")], hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip


def _hover(row: dict[Any, Any]) -> str:
    text = f"<b>{safe_text(row['title'])}</b>, step {row['step']:,.0f}<br>entropy {real(row['entropy'])}, "
    text += f"loss {real(row['loss'])} nats"
    if np.isfinite(row.get("accuracy", np.nan)):
        text += f"<br>accuracy {percent(row['accuracy'])}"
    if np.isfinite(row.get("n", np.nan)):
        text += f"<br>{count(row['n'])} images"
    return text


def _alt(drawn: pd.DataFrame, names: list[str], titles: dict[str, str]) -> str:
    paths = {name: drawn.loc[drawn["task"] == name, ["entropy", "loss"]].to_numpy(np.float64) for name in names}
    misled = [name for name, path in paths.items() if path[-1, 0] < path[0, 0] and path[-1, 1] > path[0, 1]]
    words = f"Entropy against loss of {plural(len(names), 'task')} at {plural(drawn['step'].nunique(), 'step')}."
    if not misled:
        return f"{words} On no task does entropy fall while the loss rises."
    named = ", ".join(clean_text(titles[name], 40) for name in misled[:3])
    return f"{words} Entropy falls while the loss rises on {len(misled)} of them: {named}."
