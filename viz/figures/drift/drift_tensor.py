"""One layer's drift on every task, for several runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order
from viz.drawing import Drawing, Trace, scatter
from viz.parts import legends
from viz.text import clean_text, identifier, percent, plural, real, safe_text, short_name

LANE, GAP, BOTTOM = 13, 16, 62  # px: between the runs of a task, between tasks, under the plot


@chart(
    title="Drift of one layer",
    question="How far does this layer drift on each task in each run?",
    columns=("run", "label", "task", "title", "relative", "mean_square"),
    rows=("run", "task"),
    picks=("task",),
    empty="No drift was measured for this tensor.",
)
def drift_tensor(
    table: pd.DataFrame,
    *,
    tensor: str = "",
    selected: str | None = None,
    runs: list[str] | None = None,
    present: bool = False,
) -> go.Figure:
    """A dot for each task and run.

    run (id), label, task, title, relative (change of the layer's output over the output, a fraction), mean_square
    (squared change per output). ``tensor`` is named on the axis; ``selected`` is the task whose row is outlined;
    ``runs`` is the full ordered list that fixes the colors.
    """
    table = table[np.isfinite(table["relative"].to_numpy(np.float64))]
    if table.empty:
        return theme.notice("drift_tensor", "Nothing to draw: this layer outputs only zeros.", present)
    table = table.assign(run=table["run"].astype(str), task=table["task"].astype(str))
    names, tasks = in_order(table["run"]), in_order(table["task"])
    look, row_height = theme.looks(runs or names), LANE * len(names) + GAP
    traces: list[Trace] = []
    for lane, run in enumerate(names):
        offset = (lane - (len(names) - 1) / 2) * LANE / row_height
        traces.append(_dots(table[table["run"] == run], tasks, offset, look.get(run, theme.KINDS["merge"])))
    titles = [safe_text(title, 24) for title in table.drop_duplicates("task").set_index("task")["title"][tasks]]
    legend, top = legends.above([str(label) for label in table.drop_duplicates("run")["label"]])
    what = f"Drift of {short_name(tensor, 40)}<br>" if tensor else ""
    fig = Drawing(traces)
    fig.update_xaxes(
        title={"text": f"{what}(change of its output, share of the output's norm)"}, tickformat=".3~%",
        range=[0, float(table["relative"].max()) * 1.06 or 1.0],
    )  # fmt: skip
    fig.update_yaxes(
        title={"text": "Task"}, tickmode="array", tickvals=list(range(len(tasks))), ticktext=titles, showgrid=False,
        range=[len(tasks) - 0.5, -0.5], fixedrange=True,
    )  # fmt: skip
    margin = {"l": max(map(theme.text_width, titles)) + 40, "r": 26, "t": top + 30, "b": BOTTOM}
    fig.update_layout(legend=legend, margin=margin, shapes=[*_bands(tasks), *_outline(tasks, selected)])
    size = row_height * max(len(tasks), 3) + margin["t"] + BOTTOM
    return theme.finish(fig, "drift_tensor", _alt(table, names), size, present, tensor)


def _dots(rows: pd.DataFrame, tasks: list[str], offset: float, look: theme.Look) -> Trace:
    return scatter(
        x=rows["relative"].to_numpy(np.float32),
        y=np.array([tasks.index(task) + offset for task in rows["task"]], np.float32), mode="markers",
        name=legends.entry(rows["label"].iloc[0]),
        marker={"symbol": look.symbol, "color": look.color, "size": 9, "line": theme.edge(0.8), "opacity": 1},
        unselected={"marker": {"opacity": 1}}, customdata=[[identifier(task)] for task in rows["task"]],
        text=[_hover(row) for row in rows.to_dict("records")], hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip


def _hover(row: dict[Any, Any]) -> str:
    return (
        f"<b>{safe_text(row['title'])}</b>, {safe_text(row['label'])}<br>the output moves by "
        f"{percent(row['relative'], 2)}<br>mean square {real(row['mean_square'])}"
    )


def _bands(tasks: list[str]) -> list[dict[str, Any]]:
    """A tint behind every other task, which guides the eye along the row."""
    return [
        {
            "type": "rect", "xref": "x domain", "yref": "y", "x0": 0, "x1": 1, "y0": row - 0.5, "y1": row + 0.5,
            "fillcolor": theme.PANEL, "line": {"width": 0}, "layer": "below",
        }
        for row in range(0, len(tasks), 2)
    ]  # fmt: skip


def _outline(tasks: list[str], selected: str | None) -> list[dict[str, Any]]:
    if selected not in tasks:
        return []
    row = tasks.index(selected)
    return [
        {
            "type": "rect", "xref": "x domain", "yref": "y", "x0": 0, "x1": 1, "y0": row - 0.5, "y1": row + 0.5,
            "line": {"color": theme.ACCENT, "width": 2}, "name": "selected",
        }
    ]  # fmt: skip


def _alt(table: pd.DataFrame, names: list[str]) -> str:
    means = table.groupby("run")["relative"].mean()
    labels = dict(zip(table["run"], table["label"], strict=True))
    words = f"Drift of one layer on {plural(table['task'].nunique(), 'task')} for {plural(len(names), 'run')}. "
    return f"{words}Least on average: {clean_text(labels[str(means.idxmin())], 60)}, {percent(means.min(), 2)}."
