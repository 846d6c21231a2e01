"""Accuracy on every task for several runs, with intervals and the task's references."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order
from viz.drawing import Drawing, Trace, scatter
from viz.parts import legends
from viz.text import clean_text, count, identifier, percent, plural, safe_text

LANE, TASK_GAP, PANEL_GAP = 11, 12, 44  # px: height of a run's lane, between tasks, between panels
REFERENCES = {
    "expert": ("Own expert", {"color": theme.INK, "width": 2.5}, "line-ns"),
    "zero_shot": ("Pretrained, zero-shot", {"color": "#8A94A3", "width": 2.5}, "line-ns"),
    "chance": ("Chance", {"color": "#8A94A3", "width": 1.5}, "x-thin"),
}


@dataclass(frozen=True)
class Panel:
    """The tasks of one group, the first on top."""

    title: str
    rows: pd.DataFrame
    tasks: list[str]
    axis: str


@chart(
    title="Accuracy per task",
    question="Which task pays for the merge?",
    columns=("run", "label", "task", "title", "in_domain", "accuracy", "low", "high", "n", "correct"),
    optional=("expert", "zero_shot", "chance"),
    rows=("run", "task"),
    picks=("run", "task"),
    empty="No run has been evaluated yet.",
)
def task_accuracy(
    table: pd.DataFrame, *, normalized: bool = False, runs: list[str] | None = None, present: bool = False
) -> go.Figure:
    """A dot with its Wilson interval for each run and task, in-domain tasks above out-of-domain ones.

    run (id), label, task (key), title, in_domain (bool), accuracy, low, high (fractions), n (images), correct (images),
    expert (own expert's accuracy), zero_shot (pretrained's), chance (fractions), drawn as ticks. ``normalized``
    divides by ``expert``; tasks without one are left out, and a note counts them. ``runs`` is the full ordered list
    that fixes the colors.
    """
    table = table.assign(run=table["run"].astype(str), task=table["task"].astype(str))
    left_out: list[str] = []
    if normalized:
        table, left_out = _normalize(table)
    if table.empty:
        return theme.notice("task_accuracy", "Nothing to draw: no task has its own expert's accuracy.", present)
    names = in_order(table["run"])
    look = theme.looks(runs or names)
    panels = _panels(table)
    heights = [len(panel.tasks) * _task_height(len(names)) for panel in panels]
    inner = sum(heights) + PANEL_GAP * (len(panels) - 1)
    labels = table.drop_duplicates("run").set_index("run")["label"]
    left, right = _label_width(panels) + 38, 30
    names_shown = [*labels, *(name for name, *_ in REFERENCES.values())]
    legend, used = legends.above(names_shown, margins=left + right)
    top, bottom = 34 + used, 54 + (20 if left_out else 0)

    traces: list[Trace] = []
    for panel in panels:
        traces += _references(panel, normalized)
        for lane, run in enumerate(names):
            traces += _run(panel, run, (lane - (len(names) - 1) / 2) * LANE / _task_height(len(names)), look[run])
    fig = Drawing(traces)
    fig.update_layout(shapes=[band for panel in panels for band in _bands(panel)])
    _lay_out_axes(fig, panels, heights, inner, normalized)
    legends.one_entry_each(fig)
    if left_out:
        fig.add_annotation(
            text=f"Left out, no accuracy of its own expert: {plural(len(left_out), 'task')}", x=0, xref="paper", y=0,
            yref="paper", xanchor="left", yanchor="top", yshift=-46, font={"color": theme.FADED, "size": theme.SMALL},
            showarrow=False,
        )  # fmt: skip
    fig.update_layout(
        legend=legend,
        margin={"l": left, "r": right, "t": top, "b": bottom},
    )
    return theme.finish(
        fig, "task_accuracy", _alt(table, names, normalized), inner + top + bottom, present, str(normalized)
    )


def _task_height(runs: int) -> float:
    return max(28, runs * LANE + TASK_GAP)


def _normalize(table: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Accuracies as multiples of the own expert's, and the tasks that have none."""
    expert = table["expert"].astype(float) if "expert" in table else pd.Series(np.nan, index=table.index)
    usable = expert > 0
    left_out = [task for task in in_order(table["task"]) if not usable[table["task"] == task].any()]
    scaled = table[usable].copy()
    for column in ("accuracy", "low", "high", "zero_shot", "chance"):
        if column in scaled:
            scaled[column] = scaled[column].astype(float) / expert[usable]
    return scaled, left_out


def _panels(table: pd.DataFrame) -> list[Panel]:
    panels: list[Panel] = []
    for title, is_in_domain in (("In-domain tasks", True), ("Out-of-domain tasks", False)):
        rows = table[table["in_domain"].astype(bool) == is_in_domain]
        if len(rows):
            panels.append(Panel(title, rows, in_order(rows["task"]), "y" if not panels else "y2"))
    return panels


def _bands(panel: Panel) -> list[dict[str, Any]]:
    """A tint behind every other task, which guides the eye along the row."""
    return [
        {
            "type": "rect", "xref": "x domain", "yref": panel.axis, "x0": 0, "x1": 1, "y0": index - 0.5,
            "y1": index + 0.5, "fillcolor": theme.PANEL, "line": {"width": 0}, "layer": "below",
        }
        for index in range(0, len(panel.tasks), 2)
    ]  # fmt: skip


def _references(panel: Panel, normalized: bool) -> Iterator[Trace]:
    """Ticks at the accuracies of the reference models."""
    first = panel.rows.drop_duplicates("task").set_index("task").loc[panel.tasks]
    for column, (name, line, symbol) in REFERENCES.items():
        if column not in first or (normalized and column == "expert"):
            continue
        values = first[column].to_numpy(np.float32)
        known = np.isfinite(values)
        if not known.any():
            continue
        titles = [safe_text(title) for title in first["title"][known]]
        yield scatter(
            x=values[known], y=np.flatnonzero(known).astype(np.float32), mode="markers", yaxis=panel.axis,
            name=name, legendgroup=column, legendrank=2000,
            marker={"symbol": symbol, "size": 18 if symbol == "line-ns" else 8, "line": line},
            text=[f"<b>{t}</b><br>{name.lower()} {percent(v)}" for t, v in zip(titles, values[known], strict=True)],
            hovertemplate="%{text}<extra></extra>",
        )  # fmt: skip


def _run(panel: Panel, run: str, offset: float, look: theme.Look) -> Iterator[Trace]:
    """The dots of a run, if it has any here."""
    rows = panel.rows[panel.rows["run"] == run]
    rows = rows[np.isfinite(rows["accuracy"].to_numpy(np.float64))]
    if rows.empty:
        return
    place = {task: index for index, task in enumerate(panel.tasks)}
    accuracy = rows["accuracy"].to_numpy(np.float32)
    yield scatter(
        x=accuracy, y=np.array([place[task] + offset for task in rows["task"]], np.float32), mode="markers",
        yaxis=panel.axis, name=safe_text(rows["label"].iloc[0], 40), legendgroup=safe_text(f"run {run}"),
        marker={"symbol": look.symbol, "color": look.color, "size": 9, "line": theme.edge(0.8), "opacity": 1},
        unselected={"marker": {"opacity": 1}}, error_x=_interval(rows, accuracy, look.color),
        customdata=[[identifier(run), identifier(task)] for task in rows["task"]],
        text=[_hover(row) for row in rows.to_dict("records")], hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip


def _interval(rows: pd.DataFrame, accuracy: np.ndarray, color: str) -> dict[str, Any]:
    above, below = rows["high"].to_numpy(np.float32) - accuracy, accuracy - rows["low"].to_numpy(np.float32)
    return {
        "type": "data", "symmetric": False, "array": np.nan_to_num(above).clip(0),
        "arrayminus": np.nan_to_num(below).clip(0), "color": theme.FADED if color == "#F0E442" else color,
        "thickness": 1.5, "width": 0,
    }  # fmt: skip


def _hover(row: dict[Any, Any]) -> str:
    text = f"<b>{safe_text(row['title'])}</b><br>{safe_text(row['label'])}: {percent(row['accuracy'])}"
    if np.isfinite(row["low"]) and np.isfinite(row["high"]):
        text += f" ({percent(row['low'])} to {percent(row['high'])})"
    text += f"<br>{count(row['correct'])} of {count(row['n'])} images"
    for column, (name, _, _) in REFERENCES.items():
        if np.isfinite(value := row.get(column, np.nan)):
            text += f"<br>{name.lower()} {percent(value)}"
    return text


def _lay_out_axes(fig: Drawing, panels: list[Panel], heights: list[float], inner: float, normalized: bool) -> None:
    top = inner
    widest = _label_width(panels)
    for panel, height in zip(panels, heights, strict=True):
        titles = panel.rows.drop_duplicates("task").set_index("task").loc[panel.tasks, "title"]
        fig.update_layout({
            panel.axis.replace("y", "yaxis"): {
                "domain": [(top - height) / inner, top / inner], "anchor": "x", "range": [len(panel.tasks) - 0.5, -0.5],
                "tickmode": "array", "tickvals": list(range(len(panel.tasks))), "showgrid": False, "fixedrange": True,
                "ticktext": [safe_text(title, 24) for title in titles],
                "title": {"text": "Task", "standoff": 8 + widest - _label_width([panel])},
            }
        })  # fmt: skip
        fig.add_annotation(theme.caption(f"<b>{panel.title}</b>", top / inner))
        top -= height + PANEL_GAP
    title = "Accuracy relative to the task's own expert (%)" if normalized else "Accuracy (%), Wilson 95% interval"
    fig.update_xaxes(title={"text": title}, tickformat=".0%", anchor=panels[-1].axis, range=_range(panels))
    if normalized:
        line = {"color": theme.INK, "width": 1.2, "dash": "dash"}
        fig.add_shape(type="line", xref="x", yref="paper", x0=1, x1=1, y0=0, y1=1, line=line, layer="below")


def _range(panels: list[Panel]) -> list[float]:
    """The range of all marks, references and intervals, with a margin."""
    columns = ["accuracy", "low", "high", *REFERENCES]
    arrays = [p.rows[c].to_numpy(np.float64) for p in panels for c in columns if c in p.rows]
    values = np.concatenate(arrays)
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    pad = max(0.04 * (high - low), 0.01)
    return [max(-0.01, low - pad), high + pad]


def _label_width(panels: list[Panel]) -> float:
    return max(theme.text_width(safe_text(title, 24)) for panel in panels for title in panel.rows["title"])


def _alt(table: pd.DataFrame, names: list[str], normalized: bool) -> str:
    means = table.groupby("run")["accuracy"].mean()
    labels = table.drop_duplicates("run").set_index("run")["label"]
    best = str(means.idxmax())
    word = "relative accuracy" if normalized else "accuracy"
    sentence = f"{plural(len(names), 'run')} on {plural(table['task'].nunique(), 'task')}. Highest mean {word}: "
    return sentence + f"{clean_text(labels[best])}, {percent(means[best])}."
