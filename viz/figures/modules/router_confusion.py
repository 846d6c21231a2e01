"""Whose expert the router gives the most weight, data set by data set."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order
from viz.parts import depth, matrix
from viz.text import clean_text, count, percent, plural, safe_text


@chart(
    title="Confusion of the router",
    question="Whose images does the router take each data set's images for?",
    columns=("task", "title", "in_domain", "expert", "share"),
    optional=("n",),
    rows=("task", "expert"),
    picks=("task", "expert"),
    empty="No image has been routed.",
)
def router_confusion(table: pd.DataFrame, *, present: bool = False) -> go.Figure:
    """A matrix of data sets by experts; unseen data sets, which have no expert, stand below a line.

    task, title, in_domain (bool: one of the experts is the data set's own), expert, share (of the data set's images to
    which this expert is given the most weight, a fraction), n (images of the data set).
    """
    table = table.assign(task=table["task"].astype(str), expert=table["expert"].astype(str))
    table = table.sort_values("in_domain", ascending=False, kind="stable")
    tasks, experts = in_order(table["task"]), in_order(table["expert"])
    titles = dict(zip(table["task"], table["title"], strict=True))
    rows = {(row["task"], row["expert"]): row for row in table.to_dict("records")}
    if not np.isfinite(table["share"].to_numpy(np.float64)).any():
        return theme.notice("router_confusion", "Nothing to draw: no share is a number.", present)
    values = matrix.grid({pair: float(row["share"]) for pair, row in rows.items()}, tasks, experts)
    texts = [_hover(rows[tasks[y], experts[x]]) for y, x in np.argwhere(np.isfinite(values)).tolist()]
    fig = matrix.draw(
        matrix.Side("Images of", tasks, [titles[task] for task in tasks]),
        matrix.Side("Expert with the most weight", experts, experts), values, texts,
        depth.Scale("images", log=False, limits=(0.0, 1.0), percent=True),
    )  # fmt: skip
    inside = sum(bool(flag) for flag in table.drop_duplicates("task")["in_domain"])
    if 0 < inside < len(tasks):
        line = {"color": theme.INK, "width": 2}
        fig.add_shape(type="line", x0=-0.5, x1=len(experts) - 0.5, y0=inside - 0.5, y1=inside - 0.5, line=line)
    height = matrix.height(fig, len(tasks))
    return theme.finish(fig, "router_confusion", _alt(table, titles), height, present, str(len(tasks)))


def _hover(row: dict[Any, Any]) -> str:
    of = f" of {count(row['n'])}" if np.isfinite(row.get("n", np.nan)) else ""
    unseen = "" if row["in_domain"] else ", which no expert was trained on"
    return (
        f"<b>{safe_text(row['title'])}</b>{unseen}<br>{percent(row['share'])}{of} images have "
        f"{safe_text(row['expert'])} as the expert with the most weight"
    )


def _alt(table: pd.DataFrame, titles: dict[str, str]) -> str:
    most = table.loc[table[np.isfinite(table["share"].to_numpy(np.float64))].groupby("task")["share"].idxmax()]
    words = f"The expert with the most weight for the images of {plural(len(most), 'data set')}."
    surest = most.loc[most["share"].idxmax()]
    where = f"{percent(surest['share'])} of the images go to {clean_text(surest['expert'], 40)}"
    return f"{words} The surest is {clean_text(titles[str(surest['task'])], 40)}: {where}."
