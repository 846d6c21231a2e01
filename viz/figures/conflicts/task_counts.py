"""Accuracy against how many experts are merged (DRM, Fig. 2): a dot for every subset, a line through the means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from viz import theme
from viz.chart import chart, in_order, one_of
from viz.drawing import Drawing, Trace, scatter
from viz.parts import legends
from viz.text import clean_text, count, percent, plural, safe_text

INNER, BOTTOM, LEFT = 400, 56, 66
VALUES = {
    "accuracy": "Accuracy, mean over merged tasks (%)",
    "normalized": "Accuracy relative to the experts',<br>mean over merged tasks (%)",
}
SPREAD = 0.56  # share of the distance between two sizes that the methods take side by side
Floats = NDArray[np.float32]


@chart(
    title="Number of tasks",
    question="How does accuracy fall with the number of experts that are merged?",
    columns=("method", "size", "subset", "accuracy", "normalized"),
    optional=("tasks", "n"),
    rows=("method", "size", "subset"),
    empty="Accuracy by number of tasks has not been measured on this benchmark.",
)
def task_counts(table: pd.DataFrame, *, value: str = "accuracy", present: bool = False) -> go.Figure:
    """Dots are subsets, lines go through their means; methods stand side by side at each size.

    method, size (experts merged), subset (its number), accuracy and normalized (means over the merged tasks, fractions,
    the second relative to the experts' own), tasks (their names), n (images). ``value`` says which of the two is drawn.
    """
    one_of("value", value, list(VALUES))
    table = table[np.isfinite(table[value])]
    methods = in_order(table["method"])
    if not methods:
        return theme.notice("task_counts", "No subset has an accuracy to draw.", present)
    look, traces = theme.looks(methods), list[Trace]()
    for place, method in enumerate(methods):
        rows = table[table["method"].astype(str) == method]
        shift = SPREAD * ((place + 0.5) / len(methods) - 0.5)
        traces.append(_dots(rows, value, method, look[method], shift))
        traces.append(_line(rows, value, method, look[method], shift))
    sizes = sorted({int(size) for size in table["size"]})
    fig = Drawing(traces)
    fig.update_xaxes(
        title={"text": "Experts merged"}, tickmode="array", tickvals=sizes, ticktext=[str(size) for size in sizes],
        range=[sizes[0] - 0.5, sizes[-1] + 0.5],
    )  # fmt: skip
    fig.update_yaxes(title={"text": VALUES[value]}, tickformat=".0%")
    legend, top = legends.above(methods)
    fig.update_layout(legend=legend, margin={"l": LEFT, "r": 26, "t": top + 12, "b": BOTTOM})
    return theme.finish(fig, "task_counts", _alt(table, value, methods), INNER + top + 12 + BOTTOM, present, value)


def _dots(rows: pd.DataFrame, value: str, method: str, look: theme.Look, shift: float) -> Trace:
    red, green, blue = (int(look.color[i : i + 2], 16) for i in (1, 3, 5))
    return scatter(
        x=_places(rows["size"], shift), y=rows[value].to_numpy(np.float32), mode="markers", showlegend=False,
        name=legends.entry(f"{method}, subsets"), legendgroup=safe_text(method),
        marker={
            "symbol": look.symbol, "size": 6, "color": f"rgba({red},{green},{blue},0.55)",
            "line": {"width": 0.5, "color": theme.FADED},
        },
        text=[_hover(method, row) for row in rows.to_dict("records")], hovertemplate="%{text}<extra></extra>",
        meta={"x": rows["size"].tolist()},
    )  # fmt: skip


def _hover(method: str, row: Mapping[Any, Any]) -> str:
    subset = safe_text(row["tasks"], 120) if "tasks" in row else f"subset {row['subset']}"
    text = f"<b>{safe_text(method)}, {plural(int(row['size']), 'expert')}</b><br>{subset}"
    text += f"<br>{percent(row['accuracy'])}, {percent(row['normalized'])} of the experts'"
    return text + (f"<br>{count(row['n'])} images" if "n" in row else "")


def _line(rows: pd.DataFrame, value: str, method: str, look: theme.Look, shift: float) -> Trace:
    groups = rows.groupby("size", sort=True)[value]
    means = groups.mean()
    text = [
        f"<b>{safe_text(method)}, {plural(int(str(size)), 'expert')}</b><br>mean {percent(group.mean())} over "
        f"{plural(len(group), 'subset')} ({percent(group.min())} to {percent(group.max())})"
        for size, group in groups
    ]
    return scatter(
        x=_places(means.index, shift), y=means.to_numpy(np.float32), mode="lines+markers",
        name=legends.entry(method), legendgroup=safe_text(method), line={"color": look.color, "width": 2.5},
        marker={"symbol": look.symbol, "color": look.color, "size": 10, "line": theme.edge(0.8)},
        text=text, hovertemplate="%{text}<extra></extra>", meta={"x": means.index.tolist()},
    )  # fmt: skip


def _places(sizes: pd.Series[int] | pd.Index[int], shift: float) -> Floats:
    return (np.asarray(sizes, np.float64) + shift).astype(np.float32)


def _alt(table: pd.DataFrame, value: str, methods: list[str]) -> str:
    means = table.groupby(["method", "size"])[value].mean()
    parts = []
    for method in methods[:7]:
        own = means[method].sort_index()
        few, many = own.index[0], own.index[-1]
        parts.append(f"{clean_text(method, 28)} {percent(own[few])} with {few}, {percent(own[many])} with {many}")
    rest = f"; {plural(len(methods) - 7, 'method')} more" if len(methods) > 7 else ""
    what = "Accuracy" if value == "accuracy" else "Accuracy relative to the experts'"
    return f"{what} by number of experts merged, mean over subsets: {'; '.join(parts)}{rest}."
