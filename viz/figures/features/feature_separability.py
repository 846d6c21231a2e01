"""How well classes are separated in the features themselves, for each data set and model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order, one_of
from viz.drawing import Drawing, Trace, scatter
from viz.parts import legends
from viz.text import clean_text, count, percent, plural, real, safe_text

VALUES = {
    "knn": "k-nearest-neighbor accuracy, leave one out (%)",
    "silhouette": "Silhouette, cosine distance (−1 to 1)",
    "scatter": "Scatter between classes over scatter within them",
}
ROW, BOTTOM, SPREAD = 40, 54, 0.5  # px, px, and the share of a row that the models' marks take


@chart(
    title="Separability",
    question="On which data sets are classes separated, whatever a map shows?",
    columns=("run", "label", "task", "title", "silhouette", "knn", "scatter"),
    optional=("low", "high", "n", "classes"),
    rows=("run", "task"),
    empty="No data set has features yet.",
)
def feature_separability(
    table: pd.DataFrame, *, value: str = "knn", runs: list[str] | None = None, present: bool = False
) -> go.Figure:
    """A dot for each model and data set; k-nearest-neighbor accuracy has its interval.

    run (id), label, task, title, silhouette, knn (a fraction), scatter, low and high (of knn), n (images), classes.
    ``value`` says what is drawn; ``runs`` is the full ordered list that fixes the colors.
    """
    one_of("value", value, tuple(VALUES))
    table = table[np.isfinite(table[value].to_numpy(np.float64))]
    if table.empty:
        return theme.notice(
            "feature_separability", "Nothing to draw: this value is undefined for these images.", present
        )
    names = in_order(table["run"])
    looks, tasks = theme.looks(runs or names), in_order(table["task"])
    titles = dict(zip(table["task"].astype(str), table["title"], strict=True))
    fig, labels = Drawing(), []
    for place, name in enumerate(names):
        rows = table[table["run"].astype(str) == name]
        shift = SPREAD * ((place + 0.5) / len(names) - 0.5)
        labels.append(str(rows["label"].iloc[0]))
        fig.add_trace(_dots(rows, value, looks.get(name, theme.KINDS["merge"]), tasks, shift))
    ticks = [safe_text(titles[task], 28) for task in tasks]
    form = {"tickformat": ".0%"} if value == "knn" else {}
    fig.update_xaxes(title={"text": VALUES[value]}, **form)
    fig.update_yaxes(
        title={"text": "Data set"}, tickmode="array", tickvals=np.arange(len(tasks)), ticktext=ticks, showgrid=True,
        range=[len(tasks) - 0.5, -0.5],
    )  # fmt: skip
    legend, top = legends.above(labels)
    left = max(map(theme.text_width, ticks)) + 40
    fig.update_layout(legend=legend, margin={"l": left, "r": 20, "t": top + 10, "b": BOTTOM})
    height = ROW * max(len(tasks), 3) + top + 10 + BOTTOM
    return theme.finish(fig, "feature_separability", _alt(table, names, value), height, present, value)


def _dots(rows: pd.DataFrame, value: str, look: theme.Look, tasks: list[str], shift: float) -> Trace:
    label, values = rows["label"].iloc[0], rows[value].to_numpy(np.float64)
    bars: dict[str, Any] = {}
    if value == "knn" and {"low", "high"} <= set(rows):
        ends = np.nan_to_num(np.stack([rows["high"] - values, values - rows["low"]]).astype(np.float64))
        bars["error_x"] = {"type": "data", "array": ends[0], "arrayminus": ends[1], "color": look.color, "width": 3}
        bars["error_x"]["thickness"] = 1.4
    return scatter(
        x=values.astype(np.float32), y=np.array([tasks.index(str(task)) + shift for task in rows["task"]], np.float32),
        mode="markers", name=legends.entry(label), legendgroup=legends.entry(label),
        marker={"color": look.color, "symbol": look.symbol, "size": 9, "line": theme.edge(0.8)},
        text=[_hover(row) for row in rows.to_dict("records")], hovertemplate="%{text}<extra></extra>", **bars,
    )  # fmt: skip


def _hover(row: Mapping[Any, Any]) -> str:
    words = f"<b>{safe_text(row['title'])}</b>, {safe_text(row['label'])}<br>nearest neighbors {percent(row['knn'])}"
    if {"low", "high"} <= set(row):
        words += f" ({percent(row['low'])} to {percent(row['high'])})"
    words += f"<br>silhouette {real(row['silhouette'])}, scatter ratio {real(row['scatter'])}"
    return words + (f"<br>{count(row['n'])} images" if "n" in row else "")


def _alt(table: pd.DataFrame, names: list[str], value: str) -> str:
    means = table.groupby(table["run"].astype(str), sort=False)[value].mean()
    labels = dict(zip(table["run"].astype(str), table["label"], strict=True))
    mean_texts = [
        f"{clean_text(labels[n], 40)} {percent(means[n]) if value == 'knn' else real(means[n])}" for n in names[:5]
    ]
    return f"{VALUES[value]} on {plural(table['task'].nunique(), 'data set')}. Mean: {'; '.join(mean_texts)}."
