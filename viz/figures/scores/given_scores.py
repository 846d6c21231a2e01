"""Scores that runs were given from elsewhere, task by task: an open diamond for each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order
from viz.drawing import Drawing, Trace, scatter
from viz.parts import legends
from viz.text import clean_text, count, identifier, percent, plural, real, safe_text

LANE, TASK_GAP, PANEL_GAP = 13, 12, 78  # px: height of a run's lane, between tasks, between the panels of metrics


@chart(
    title="Scores measured elsewhere",
    question="What did other programs measure?",
    columns=("run", "label", "task", "metric", "value", "low", "high", "origin"),
    optional=("n", "better", "proportion", "source"),
    rows=("run", "task", "metric"),
    picks=("run", "task"),
    empty="These runs were given no scores.",
)
def given_scores(table: pd.DataFrame, *, runs: list[str] | None = None, present: bool = False) -> go.Figure:
    """A panel for each metric on its own scale, with an open diamond for each run and task.

    run (id), label, task (with its split, if the file names one), metric, value, low, high (of proportions with a known
    n, else NaN), origin (the file or program), source ("given" or "program"), n (examples), better ("higher", "lower"
    or empty), proportion (bool: drawn as percent). ``runs`` is the full ordered list that fixes the colors.
    """
    table = table.assign(run=table["run"].astype(str), task=table["task"].astype(str))
    table = table[np.isfinite(table["value"].to_numpy(np.float64))]
    if table.empty:
        return theme.notice("given_scores", "Nothing to draw: no score is a number.", present)
    names = in_order(table["run"])
    look = theme.looks([*dict.fromkeys([*(runs or []), *names])])
    metrics = in_order(table["metric"])
    panels = [table[table["metric"].astype(str) == metric] for metric in metrics]
    lane_height = max(30, len(names) * LANE + TASK_GAP)
    heights = [lane_height * panel["task"].nunique() for panel in panels]
    inner = sum(heights) + PANEL_GAP * (len(panels) - 1)
    labels = table.drop_duplicates("run").set_index("run")["label"]
    wide = max(theme.text_width(safe_text(task, 28)) for task in table["task"])
    left, right = wide + 40, 30
    legend, used = legends.above(list(labels), margins=left + right)
    top, bottom = 26 + used, 56
    fig, end = Drawing(), float(inner)
    for place, (metric, panel, height) in enumerate(zip(metrics, panels, heights, strict=True)):
        for lane, run in enumerate(names):
            fig.add_traces(_marks(panel, run, (lane - (len(names) - 1) / 2) * LANE / lane_height, look[run], place))
        _axes(fig, metric, panel, place, ((end - height) / inner, end / inner), 8 + wide)
        end -= height + PANEL_GAP
    legends.one_entry_each(fig)
    fig.update_layout(legend=legend, margin={"l": left, "r": right, "t": top, "b": bottom})
    return theme.finish(fig, "given_scores", _alt(table, metrics, labels), inner + top + bottom, present)


def _axis(letter: str, place: int) -> str:
    return letter if place == 0 else f"{letter}{place + 1}"


def _marks(panel: pd.DataFrame, run: str, offset: float, look: theme.Look, place: int) -> Iterator[Trace]:
    """The diamonds of a run in one panel, with the intervals of those that have one."""
    rows = panel[panel["run"] == run]
    if rows.empty:
        return
    at = {task: index for index, task in enumerate(in_order(panel["task"]))}
    value = rows["value"].to_numpy(np.float32)
    above, below = rows["high"].to_numpy(np.float32) - value, value - rows["low"].to_numpy(np.float32)
    yield scatter(
        x=value, y=np.array([at[task] + offset for task in rows["task"]], np.float32), mode="markers",
        xaxis=_axis("x", place), yaxis=_axis("y", place), name=safe_text(rows["label"].iloc[0], 40),
        legendgroup=safe_text(f"run {run}"), unselected={"marker": {"opacity": 1}},
        marker={"symbol": "diamond-open", "color": look.color, "size": 11, "line": {"width": 2}, "opacity": 1},
        error_x={
            "type": "data", "symmetric": False, "array": np.nan_to_num(above).clip(0), "color": look.color,
            "arrayminus": np.nan_to_num(below).clip(0), "thickness": 1.5, "width": 0,
        },
        customdata=[[identifier(run), identifier(task)] for task in rows["task"]],
        text=[_hover(row) for row in rows.to_dict("records")], hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip


def _shown(row: dict[Any, Any], value: float) -> str:
    return percent(value) if row.get("proportion") is True else real(value)


def _hover(row: dict[Any, Any]) -> str:
    text = f"<b>{safe_text(row['task'])}</b><br>{safe_text(row['label'])}: {_shown(row, row['value'])}"
    if np.isfinite(row["low"]) and np.isfinite(row["high"]):
        text += f" ({_shown(row, row['low'])} to {_shown(row, row['high'])})"
    text += f"<br>{safe_text(row['metric'])}"
    if np.isfinite(row.get("n", np.nan)):
        text += f", n = {count(row['n'])}"
    return f"{text}<br>given in {safe_text(row['origin'])}"


def _axes(
    fig: Drawing, metric: str, panel: pd.DataFrame, place: int, domain: tuple[float, float], standoff: float
) -> None:
    """The axes of one metric, whose scale is its own."""
    tasks = in_order(panel["task"])
    share = "proportion" in panel and panel["proportion"].map(lambda flag: flag is True).all()
    better = next((str(word) for word in panel.get("better", ()) if word in ("higher", "lower")), "")
    title = safe_text(metric, 40) + (" (%)" if share else "") + (f", {better} is better" if better else "")
    if np.isfinite(panel["low"].to_numpy(np.float64)).any():
        title += ", Wilson 95% interval"
    values = panel[["value", "low", "high"]].to_numpy(np.float64)
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    pad = max(0.06 * (high - low), 0.01 * max(abs(low), abs(high)), 1e-6)
    fig.update_layout({
        _axis("x", place).replace("x", "xaxis"): {
            "title": {"text": title}, "tickformat": ".0%" if share else "", "range": [low - pad, high + pad],
            "anchor": _axis("y", place),
        },
        _axis("y", place).replace("y", "yaxis"): {
            "domain": [max(0.0, domain[0]), min(1.0, domain[1])], "anchor": _axis("x", place), "tickmode": "array",
            "range": [len(tasks) - 0.5, -0.5], "tickvals": list(range(len(tasks))), "showgrid": False,
            "fixedrange": True, "ticktext": [safe_text(task, 28) for task in tasks],
            "title": {"text": "Task", "standoff": standoff},
        },
    })  # fmt: skip


def _alt(table: pd.DataFrame, metrics: list[str], labels: pd.Series) -> str:
    words = f"{plural(len(labels), 'run')} on {plural(table['task'].nunique(), 'task')}, measured elsewhere, in "
    words += f"{plural(len(metrics), 'metric')}."
    for metric in metrics[:3]:
        rows = table[table["metric"].astype(str) == metric]
        most = rows.iloc[int(rows["value"].to_numpy(np.float64).argmax())].to_dict()
        words += (
            f" Largest {clean_text(metric, 30)}: {_shown(most, most['value'])}, {clean_text(most['label'], 30)} on "
            f"{clean_text(most['task'], 30)}."
        )
    return words
