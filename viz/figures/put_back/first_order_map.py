"""What putting a tensor back would change, predicted to first order from one gradient."""

from __future__ import annotations

from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.colors import get_colorscale

from viz import theme
from viz.chart import chart, in_order
from viz.parts import depth
from viz.text import clean_text, layer_name, plural, real, safe_text, short_name

SCALE = depth.Scale("first order:<br>Δ margin", log=False, diverging=True, colors=get_colorscale("BrBG"))


@chart(
    title="Put back, first order",
    question="First order: which layers would help if they were put back?",
    columns=("row", "title", "tensor", "order", "section", "role", "part", "predicted"),
    rows=("row", "tensor"),
    picks=("row", "tensor"),
    empty="The first-order map has not been measured.",
)
def first_order_map(
    table: pd.DataFrame, *, selected: tuple[str | None, str | None] = (None, None), present: bool = False
) -> go.Figure:
    """A heat map of predicted changes, tasks or experts by tensors in forward order; never in points of accuracy.

    row (id) and title of an average, a task or an expert, tensor, order (model order), section, role, part, predicted
    (change of the mean margin, the cosine of the right class minus the largest other one). ``selected`` outlines a
    (row, tensor).
    """
    titles = dict(zip(table["row"].astype(str), table["title"], strict=True))
    rows = [titles[row] for row in in_order(table["row"])]
    fig, columns = depth.heat_map(table, "row", "predicted", SCALE, _hover, selected, rows)
    fig.update_yaxes(title={"text": "Mean margin on"})
    words = "First order: a guess from one gradient, in units of cosine"
    fig.update_layout(annotations=[*fig.annotations, theme.caption(words, 1)])
    alt = _alt(table, len(columns.names))
    return theme.finish(fig, "first_order_map", alt, depth.height(len(rows)), present, str(len(columns.names)))


def _hover(row: dict[Any, Any]) -> str:
    return (
        f"<b>{short_name(row['tensor'])}</b><br>{safe_text(row['title'])}: margin {_signed(row['predicted'])}, first "
        f"order<br>{layer_name(row)}"
    )


def _signed(number: float) -> str:
    return f"+{real(number)}" if number > 0 else real(number).replace("-", "−")


def _alt(table: pd.DataFrame, tensors: int) -> str:
    words = f"First-order guess of what putting back one of {plural(tensors, 'tensor')} changes in the mean margin."
    if (most := depth.largest(table, "predicted")) is None:
        return words
    return (
        f"{words} The largest gain is predicted for {clean_text(most['tensor'])}, {clean_text(most['title'])}: "
        f"{_signed(most['predicted'])}."
    )
