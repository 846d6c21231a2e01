"""How far each task's features are from its expert's, before and after its module."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart
from viz.drawing import Drawing, Trace, bar
from viz.parts import legends
from viz.text import clean_text, count, percent, plural, real, safe_text

LANE, GAP, BOTTOM = 15, 16, 58  # px: height of a bar, between tasks, under the plot
STAGES = {"before": ("Merged model", "#999999", "/"), "after": ("With the task's module", "#0072B2", "")}


@chart(
    title="Feature shift before and after the modules",
    question="How much of each task's feature shift does its module remove?",
    columns=("task", "title", "before", "after"),
    optional=("cosine_before", "cosine_after", "n"),
    rows=("task",),
    picks=("task",),
    empty="No feature shift was measured for this run.",
)
def feature_shift(table: pd.DataFrame, *, present: bool = False) -> go.Figure:
    """Two bars for each task, in the table's order: the merged model's shift, and what its module leaves of it.

    task, title, before and after (mean |f − f_expert| per dimension of the raw features, over images), cosine_before
    and cosine_after (mean 1 − cosine), n (images).
    """
    finite = np.isfinite(table[["before", "after"]].to_numpy(np.float64)).all(axis=1)
    drawn = table[finite].reset_index(drop=True)
    if drawn.empty:
        return theme.notice("feature_shift", "Nothing to draw: no task has both numbers.", present)
    group = 2 * LANE + GAP
    fig = Drawing([_bars(drawn, stage, lane, group) for lane, stage in enumerate(STAGES)])
    titles = [safe_text(title, 24) for title in drawn["title"]]
    legend, top = legends.above([name for name, _, _ in STAGES.values()])
    fig.update_xaxes(title={"text": "Mean |difference| from the expert's features, per dimension"}, rangemode="tozero")
    fig.update_yaxes(
        title={"text": "Task"}, tickmode="array", tickvals=list(range(len(titles))), ticktext=titles, showgrid=False,
        range=[len(titles) - 0.5, -0.5], fixedrange=True,
    )  # fmt: skip
    margin = {"l": max(map(theme.text_width, titles)) + 40, "r": 30, "t": top + 14, "b": BOTTOM}
    fig.update_layout(barmode="overlay", legend=legend, margin=margin)
    height = group * max(len(drawn), 3) + top + 14 + BOTTOM
    return theme.finish(fig, "feature_shift", _alt(drawn), height, present)


def _bars(drawn: pd.DataFrame, stage: str, lane: int, group: float) -> Trace:
    name, color, shape = STAGES[stage]
    return bar(
        x=drawn[stage].to_numpy(np.float32), y=(drawn.index + (lane - 0.5) * LANE / group).to_numpy(np.float32),
        orientation="h", name=name, legendgroup=name, width=0.9 * LANE / group, textposition="none",
        marker={
            "color": color, "line": theme.edge(0.5),
            "pattern": {"shape": shape, "fgcolor": "white", "fillmode": "overlay", "size": 6, "solidity": 0.25},
        },
        customdata=[[task] for task in drawn["task"].astype(str)],
        text=[_hover(row, stage) for row in drawn.to_dict("records")], hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip


def _hover(row: dict[Any, Any], stage: str) -> str:
    text = f"<b>{safe_text(row['title'])}</b><br>{STAGES[stage][0].lower()}: {real(row[stage])}"
    if np.isfinite(cosine := row.get(f"cosine_{stage}", np.nan)):
        text += f", 1 − cosine {real(cosine)}"
    if row["before"] > 0:
        text += f"<br>the module removes {percent(1 - row['after'] / row['before'])}"
    return text + (f"<br>{count(row['n'])} images" if np.isfinite(row.get("n", np.nan)) else "")


def _alt(drawn: pd.DataFrame) -> str:
    before, after = drawn["before"].mean(), drawn["after"].mean()
    words = f"Feature shift of {plural(len(drawn), 'task')}: {real(before)} on average before and {real(after)} after."
    left = (drawn["after"] / drawn["before"]).where(drawn["before"] > 0)
    if left.notna().any():
        most = drawn.iloc[int(np.nanargmin(left.to_numpy(np.float64)))]
        words += f" The module removes most for {clean_text(most['title'], 40)}, {percent(1 - left.min())}."
    return words
