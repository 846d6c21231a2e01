"""What CAT removes from every task vector, tensor by tensor, and how much conflict it finds."""

from __future__ import annotations

from typing import Any

import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order, one_of
from viz.parts import depth
from viz.text import clean_text, count, layer_name, percent, plural, real, safe_text, short_name

SCALES = {
    "removed": depth.Scale("share of<br>squared norm", log=False, percent=True),
    "conflict_sum": depth.Scale("conflict,<br>summed"),
    "conflict_top": depth.Scale("worst<br>conflict"),
}


@chart(
    title="What CAT removes",
    question="How much of each task vector does CAT remove, and where is the conflict?",
    columns=(
        "tensor", "order", "section", "role", "part", "expert", "removed", "conflicts", "conflict_sum", "conflict_top",
    ),
    optional=("title",),
    rows=("expert", "tensor"),
    picks=("expert", "tensor"),
    empty="This run did not remove conflicts.",
)  # fmt: skip
def drift_removed(
    table: pd.DataFrame,
    *,
    value: str = "removed",
    selected: tuple[str | None, str | None] = (None, None),
    limits: tuple[float, float] | None = None,
    present: bool = False,
) -> go.Figure:
    """A heat map, experts by tensors in forward order.

    tensor, order (model order), section, role, part, expert, removed (share of the squared norm of the expert's task
    vector that is projected out), conflicts (directions or scalars of the others' vectors that disturb the expert's
    task), conflict_sum and conflict_top (their eigenvalues: how much they disturb that task more than they help their
    own, in squared output units), title (of the expert's task). ``value`` says which is drawn; conflicts are on a
    logarithmic scale.
    """
    scale = SCALES[one_of("value", value, tuple(SCALES))]
    colors = depth.Scale(scale.title, scale.log, limits, scale.percent)
    experts = in_order(table["expert"])
    table = table if "title" in table else table.assign(title=table["expert"])
    titles = dict(zip(table["expert"].astype(str), table["title"], strict=True))
    labels = [titles[expert] for expert in experts]
    fig, columns = depth.heat_map(table, "expert", value, colors, _hover, selected, labels)
    alt = _alt(table, experts, columns)
    return theme.finish(fig, "drift_removed", alt, depth.height(len(experts)), present, f"{value}:{len(columns.names)}")


def _hover(row: dict[Any, Any]) -> str:
    return (
        f"<b>{short_name(row['tensor'])}</b><br>{safe_text(row['title'])} loses {percent(row['removed'], 2)} of "
        f"its squared norm<br>conflicts with the others: {count(row['conflicts'])}, worst "
        f"{real(row['conflict_top'])}, sum {real(row['conflict_sum'])}<br>{layer_name(row)}"
    )


def _alt(table: pd.DataFrame, experts: list[str], columns: depth.Columns) -> str:
    words = f"What is removed from {plural(len(experts), 'task vector')} in {plural(len(columns.names), 'tensor')}."
    if (most := depth.largest(table, "removed")) is None:
        return words
    return (
        f"{words} Most in {clean_text(most['tensor'])}: {clean_text(most['title'])} loses "
        f"{percent(most['removed'])} of its squared norm there."
    )
