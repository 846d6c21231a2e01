"""Drift of every layer by itself: only that tensor is merged, and its inputs are the expert's (LOT, Eq. 4)."""

from __future__ import annotations

from typing import Any

import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order, one_of
from viz.parts import depth
from viz.text import clean_text, layer_name, percent, plural, real, safe_text, short_name

SCALES = {
    "relative": depth.Scale("share of the<br>output", percent=True),
    "mean_square": depth.Scale("mean<br>square"),
}


@chart(
    title="Layer-isolated drift",
    question="Which layers drift by themselves, and on which tasks?",
    columns=("tensor", "order", "section", "role", "part", "task", "title", "relative", "mean_square"),
    rows=("task", "tensor"),
    picks=("task", "tensor"),
    empty="No drift has been measured layer by layer.",
)
def drift_layers(
    table: pd.DataFrame,
    *,
    value: str = "relative",
    selected: tuple[str | None, str | None] = (None, None),
    limits: tuple[float, float] | None = None,
    present: bool = False,
) -> go.Figure:
    """A heat map, tasks by tensors in forward order, on a logarithmic scale.

    tensor, order (model order), section ("embeddings", "block 0" …, "output"), role, part (kind of layer), task, title,
    relative (norm of the change of the layer's output over the norm of the expert's output, a fraction), mean_square
    (squared change per output). ``value`` says which is drawn; ``selected`` outlines a (task, tensor); ``limits`` fixes
    the color range, so that two figures compare.
    """
    scale = SCALES[one_of("value", value, tuple(SCALES))]
    titles = dict(zip(table["task"].astype(str), table["title"], strict=True))
    tasks = in_order(table["task"])
    colors = depth.Scale(scale.title, scale.log, limits, scale.percent)
    fig, columns = depth.heat_map(table, "task", value, colors, _hover, selected, [titles[task] for task in tasks])
    alt = _alt(table, tasks, columns)
    return theme.finish(fig, "drift_layers", alt, depth.height(len(tasks)), present, f"{value}:{len(columns.names)}")


def _hover(row: dict[Any, Any]) -> str:
    return (
        f"<b>{short_name(row['tensor'])}</b><br>{safe_text(row['title'])}: its output moves by "
        f"{percent(row['relative'], 2)}<br>mean square {real(row['mean_square'])}<br>"
        f"{layer_name(row)}"
    )


def _alt(table: pd.DataFrame, tasks: list[str], columns: depth.Columns) -> str:
    words = f"Layer-isolated drift of {plural(len(columns.names), 'tensor')} on {plural(len(tasks), 'task')}."
    if (most := depth.largest(table, "relative")) is None:
        return words
    return (
        f"{words} It is largest in {clean_text(most['tensor'])} on {clean_text(most['title'])}: "
        f"{percent(most['relative'])} of the output."
    )
