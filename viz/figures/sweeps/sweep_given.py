"""What a user's program measured at every value of a sweep: an open diamond for each point and task."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order
from viz.drawing import Drawing
from viz.parts import axes, legends, sweep
from viz.text import clean_text, count, identifier, percent, plural, real, safe_text

PANEL, GAP, BOTTOM, LEFT = 190, 30, 52, 76  # px


@chart(
    title="Scores measured elsewhere, along a sweep",
    question="What did the program measure as the value changes?",
    columns=("series", "label", "x", "point", "metric", "value", "low", "high", "origin"),
    optional=("n", "better", "proportion", "mean", "source"),
    rows=("series", "x", "metric"),
    picks=("point",),
    empty="No point of this sweep has been measured yet.",
)
def sweep_given(
    table: pd.DataFrame,
    *,
    title: str = "Value",
    values: list[float] | None = None,
    series: list[str] | None = None,
    note: str = "",
    present: bool = False,
) -> go.Figure:
    """A panel for each metric on its own scale, with a line of open diamonds for each series.

    series (id: a task, or a mean over tasks, of a recipe), label, x (the value), point (id), metric, value, low, high
    (of proportions with a known n, else NaN), origin (the program), source ("program"), n (examples), better ("higher",
    "lower" or empty), proportion (bool: drawn as percent), mean (bool: over tasks, dashed). ``values`` are all values
    of the sweep, also those that are not measured yet; ``series`` is the full ordered list that fixes the colors;
    ``note`` stands below.
    """
    table = table.assign(series=table["series"].astype(str), metric=table["metric"].astype(str))
    table = table[np.isfinite(table["value"].to_numpy(np.float64))].sort_values("x", kind="stable")
    if table.empty:
        return theme.notice("sweep_given", "Nothing to draw: no score is a number.", present)
    metrics, names = in_order(table["metric"]), in_order(table["series"])
    look, labels = theme.looks(series or names), dict(zip(table["series"], table["label"], strict=True))
    fig, traces = Drawing(), []
    for place, metric in enumerate(metrics):
        panel = table[table["metric"] == metric]
        for name in names:
            rows = panel[panel["series"] == name]
            if len(rows):
                traces.append(_line(rows, labels[name], look[name], _axis(place)))
    fig.add_traces(traces)
    legends.one_entry_each(fig)
    inner = len(metrics) * PANEL + (len(metrics) - 1) * GAP
    legend, top = legends.above([labels[name] for name in names])
    annotations, more = axes.note(note, BOTTOM)
    span = sweep.stretch(values, table["x"].tolist())
    fig.update_xaxes(title={"text": safe_text(title, 90)}, range=span, anchor=_axis(len(metrics) - 1))
    for place, metric in enumerate(metrics):
        end = inner - place * (PANEL + GAP)
        _lay_out(fig, table[table["metric"] == metric], metric, place, (max(0.0, (end - PANEL) / inner), end / inner))
    margin = {"l": LEFT, "r": 24, "t": top + 14, "b": BOTTOM + more}
    fig.update_layout(legend=legend, annotations=annotations, margin=margin)
    height = inner + top + 14 + BOTTOM + more
    return theme.finish(fig, "sweep_given", _alt(table, metrics, labels, title, note), height, present, title)


def _axis(place: int) -> str:
    return "y" if place == 0 else f"y{place + 1}"


def _line(rows: pd.DataFrame, label: str, look: theme.Look, axis: str) -> dict[str, Any]:
    """The diamonds of a series in one panel, with the intervals of those that have one."""
    value = rows["value"].to_numpy(np.float32)
    above, below = rows["high"].to_numpy(np.float32) - value, value - rows["low"].to_numpy(np.float32)
    mean = "mean" in rows and bool(rows["mean"].iloc[0])
    return {
        "type": "scatter", "x": rows["x"].to_numpy(np.float32), "y": value, "yaxis": axis, "mode": "lines+markers",
        "name": legends.entry(label), "legendgroup": legends.entry(label), "unselected": {"marker": {"opacity": 1}},
        "line": {"color": look.color, "width": 2.5 if mean else 1.5, "dash": "dash" if mean else "solid"},
        "marker": {"symbol": "diamond-open", "color": look.color, "size": 11, "line": {"width": 2}, "opacity": 1},
        "error_y": {
            "type": "data", "symmetric": False, "array": np.nan_to_num(above).clip(0), "color": look.color,
            "arrayminus": np.nan_to_num(below).clip(0), "thickness": 1.2, "width": 0,
        },
        "customdata": [[identifier(point)] for point in rows["point"]], "hovertemplate": "%{text}<extra></extra>",
        "text": [_hover(row) for row in rows.to_dict("records")],
    }  # fmt: skip


def _shown(row: dict[Any, Any], value: float) -> str:
    return percent(value) if row.get("proportion") is True else real(value)


def _hover(row: dict[Any, Any]) -> str:
    text = f"<b>{safe_text(row['label'])}</b> at {real(row['x'])}<br>{safe_text(row['metric'])} "
    text += _shown(row, row["value"])
    if np.isfinite(row["low"]) and np.isfinite(row["high"]):
        text += f" ({_shown(row, row['low'])} to {_shown(row, row['high'])})"
    if np.isfinite(row.get("n", np.nan)):
        text += f", n = {count(row['n'])}"
    return f"{text}<br>given by {safe_text(row['origin'])}"


def _lay_out(fig: Drawing, panel: pd.DataFrame, metric: str, place: int, domain: tuple[float, float]) -> None:
    """The axis of one metric, whose scale is its own."""
    share = "proportion" in panel and panel["proportion"].map(lambda flag: flag is True).all()
    better = next((str(word) for word in panel.get("better", ()) if word in ("higher", "lower")), "")
    title = safe_text(metric, 24) + (" (%)" if share else "") + (f"<br>{better} is better" if better else "")
    fig.update_layout({
        f"yaxis{place + 1 if place else ''}": {
            "domain": [domain[0], min(1.0, domain[1])], "tickformat": ".1~%" if share else "", "anchor": "x",
            "title": {"text": title}, "nticks": 5,
        }
    })  # fmt: skip


def _alt(table: pd.DataFrame, metrics: list[str], labels: dict[str, str], title: str, note: str) -> str:
    words = f"{plural(len(metrics), 'metric')} measured elsewhere, against {clean_text(title, 60)}."
    for metric in metrics[:3]:
        rows = table[table["metric"] == metric]
        most = rows.iloc[int(rows["value"].to_numpy(np.float64).argmax())].to_dict()
        largest, label = _shown(most, most["value"]), clean_text(labels[most["series"]], 30)
        words += f" Largest {clean_text(metric, 30)}: {largest}, {label} at {most['x']:g}."
    return f"{words} {clean_text(note, 300)}".strip()
