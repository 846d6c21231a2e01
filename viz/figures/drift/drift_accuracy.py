"""Drift of the final features against accuracy lost, a point for each task and run (LOT, Fig. 1a)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order, one_of
from viz.drawing import Drawing, Trace, scatter
from viz.parts import legends
from viz.text import count, identifier, percent, plural, real, safe_text

VALUES = {
    "cosine": "Drift of the final features: 1 − cosine to the expert",
    "l1": "Drift of the final features: mean |difference| from the expert, per dimension",
}
HEIGHT, BOTTOM, LEFT = 430, 56, 62
Line = tuple[float, float, float, float, int]  # slope, intercept, Pearson's r, Spearman's rho, points


@chart(
    title="Drift against accuracy lost",
    question="Does a task that drifts more lose more accuracy?",
    columns=("run", "label", "task", "title", "cosine", "l1", "lost"),
    optional=("n", "accuracy", "expert", "n_scored"),
    rows=("run", "task"),
    picks=("run", "task"),
    empty="No run has all three: measured drift, its own accuracy, and its experts' accuracy.",
)
def drift_accuracy(
    table: pd.DataFrame,
    *,
    value: str = "cosine",
    fit: Line | None = None,
    runs: list[str] | None = None,
    tasks: list[str] | None = None,
    arrows: bool = False,
    present: bool = False,
) -> go.Figure:
    """A point for each task (color) and run (symbol), and a dashed line with its coefficients if ``fit`` has them.

    run (id), label, task, title, cosine and l1 (drift at the embedding), lost (the expert's accuracy minus the run's, a
    fraction), n (images of the drift), accuracy and expert (fractions), n_scored (images of the accuracies). ``value``
    says which drift is drawn; ``runs`` and ``tasks`` are the full ordered lists that fixes symbols and colors;
    ``arrows`` lead from the first of the runs to the last, task by task.
    """
    one_of("value", value, tuple(VALUES))
    finite = np.isfinite(table[[value, "lost"]].to_numpy(np.float64)).all(axis=1)
    left_out, table = int((~finite).sum()), table[finite]
    if table.empty:
        return theme.notice("drift_accuracy", "Nothing to draw: no point has both numbers.", present)
    table = table.assign(run=table["run"].astype(str), task=table["task"].astype(str))
    names, titles = in_order(table["run"]), dict(zip(table["task"], table["title"], strict=True))
    all_runs = runs or names
    symbols = {run: theme.SYMBOLS[all_runs.index(run) % len(theme.SYMBOLS)] for run in names if run in all_runs}
    colors = theme.looks(tasks or list(titles))
    labels = dict(zip(table["run"], table["label"], strict=True))
    traces: list[Trace] = []
    for run in names:
        traces.append(_outlines(table[table["run"] == run], value, labels[run], symbols.get(run, "circle")))
    for task in titles:
        traces.append(_points(table[table["task"] == task], value, colors.get(task, theme.KINDS["merge"]), symbols))
    if fit is not None and math.isfinite(fit[0]):
        traces.append(_fitted(table, value, fit))
    runs_legend, used = legends.above([labels[run] for run in names], "Run ")
    tasks_legend, top = legends.above(list(titles.values()), "Task ", used)
    tasks_legend |= {"y": 1 - used / (HEIGHT + top)}
    fig = Drawing(traces)
    fig.update_layout(
        legend=runs_legend,
        legend2=tasks_legend,
        margin={"l": LEFT, "r": 26, "t": top + 34, "b": BOTTOM + 20 * bool(left_out)},
    )
    _lay_out(fig, table, value)
    if fit is not None and math.isfinite(fit[0]):
        fig.add_annotation(_coefficients(fit))
    if arrows and len(names) > 1:
        for arrow in _arrows(table[table["run"].isin([names[0], names[-1]])], value):
            fig.add_annotation(arrow)
    if left_out:
        fig.add_annotation(_note(left_out))
    return theme.finish(fig, "drift_accuracy", _alt(table, names, titles, fit), HEIGHT + top, present, value)


def _outlines(rows: pd.DataFrame, value: str, label: str, symbol: str) -> Trace:
    """A dark edge around a run's points, which is also the run's entry in the legend."""
    return scatter(
        x=rows[value].to_numpy(np.float32), y=100 * rows["lost"].to_numpy(np.float32), mode="markers",
        name=legends.entry(label), legend="legend", legendgroup=f"run {legends.entry(label)}", hoverinfo="skip",
        marker={"symbol": symbol, "color": theme.INK, "size": 13}, unselected={"marker": {"opacity": 1}},
    )  # fmt: skip


def _points(rows: pd.DataFrame, value: str, look: theme.Look, symbols: dict[str, str]) -> Trace:
    return scatter(
        x=rows[value].to_numpy(np.float32), y=100 * rows["lost"].to_numpy(np.float32), mode="markers",
        name=legends.entry(rows["title"].iloc[0]), legend="legend2",
        legendgroup=f"task {legends.entry(rows['title'].iloc[0])}",
        marker={"symbol": [symbols.get(run, "circle") for run in rows["run"]], "color": look.color, "size": 10},
        unselected={"marker": {"opacity": 1}},
        customdata=[[identifier(run), identifier(task)] for run, task in zip(rows["run"], rows["task"], strict=True)],
        text=[_hover(row, value) for row in rows.to_dict("records")], hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip


def _lay_out(fig: Drawing, table: pd.DataFrame, value: str) -> None:
    x = table[value].to_numpy(np.float64)
    high = float(x.max()) * 1.06 or 1.0
    fig.update_xaxes(title={"text": VALUES[value]}, range=[0, high])
    fig.update_yaxes(title={"text": "Accuracy lost against<br>the task's expert (points)"})
    fig.update_layout(margin={"l": LEFT + theme.LINE_HEIGHT})
    fig.update_layout(shapes=[theme.across(0, {"color": theme.FADED, "width": 1})])


def _fitted(table: pd.DataFrame, value: str, fit: Line) -> Trace:
    x = table[value].to_numpy(np.float64)
    ends = np.array([x.min(), x.max()])
    return scatter(
        x=ends.astype(np.float32), y=(100 * (fit[0] * ends + fit[1])).astype(np.float32), mode="lines",
        name="Fitted line", showlegend=False, hoverinfo="skip",
        line={"color": theme.INK, "width": 1.6, "dash": "dash"},
    )  # fmt: skip


def _coefficients(fit: Line) -> dict[str, object]:
    return {
        "text": f"Pearson r = {fit[2]:.2f}, Spearman ρ = {fit[3]:.2f}, n = {count(fit[4])} points", "x": 0,
        "xref": "paper", "xanchor": "left", "y": 1, "yref": "paper", "yanchor": "bottom", "yshift": 4,
        "showarrow": False, "font": {"size": theme.SMALL},
    }  # fmt: skip


def _arrows(table: pd.DataFrame, value: str) -> list[dict[str, Any]]:
    """Arrows from one run's point to the other's, for every task that has both."""
    pairs = [rows for _, rows in table.groupby("task", sort=False) if len(rows) == 2]
    ends = [(rows[value].to_numpy(float), 100 * rows["lost"].to_numpy(float)) for rows in pairs]
    return [
        {
            "x": x[1], "y": y[1], "ax": x[0], "ay": y[0], "xref": "x", "yref": "y", "axref": "x", "ayref": "y",
            "text": "", "showarrow": True, "arrowhead": 2, "arrowsize": 1, "arrowwidth": 1.6, "arrowcolor": theme.INK,
            "opacity": 0.65, "standoff": 8, "startstandoff": 8, "name": "arrow",
        }
        for x, y in ends
    ]  # fmt: skip


def _hover(row: dict[object, float], value: str) -> str:
    text = f"<b>{safe_text(row['title'])}</b>, {safe_text(row['label'])}<br>drift {real(row[value])}"
    text += f"<br>accuracy lost {100 * row['lost']:.1f} points"
    if math.isfinite(row.get("accuracy", math.nan)) and math.isfinite(row.get("expert", math.nan)):
        text += f": {percent(row['accuracy'])}, the expert {percent(row['expert'])}"
    for column, what in (("n", "drift"), ("n_scored", "accuracy")):
        if math.isfinite(n := row.get(column, math.nan)):
            text += f"<br>{count(n)} images for the {what}"
    return text


def _note(left_out: int) -> dict[str, object]:
    return {
        "text": f"Left out for lack of one of the numbers: {plural(left_out, 'point')}", "x": 0, "xref": "paper",
        "xanchor": "left", "y": 0, "yref": "paper", "yanchor": "top", "yshift": -50, "showarrow": False,
        "font": {"size": theme.SMALL, "color": theme.FADED},
    }  # fmt: skip


def _alt(table: pd.DataFrame, names: list[str], titles: dict[str, str], fit: Line | None) -> str:
    words = f"{plural(len(table), 'point')}: {plural(len(names), 'run')} on {plural(len(titles), 'task')}."
    if fit is None or not math.isfinite(fit[2]):
        return words
    return f"{words} Drift and accuracy lost correlate with Pearson {fit[2]:.2f} and Spearman {fit[3]:.2f}."
