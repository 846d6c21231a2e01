"""Sign agreement layer by layer, in the space of weights and in the joint spaces."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order, one_of
from viz.parts import depth
from viz.text import clean_text, count, percent, plural, safe_text, short_name

SCALES = {
    "excess": depth.Scale("excess over<br>random signs", log=False, percent=True, diverging=True),
    "mean": depth.Scale("mean<br>agreement", log=False, limits=(0.5, 1.0), percent=True),
    "kept": depth.Scale("density", log=False, limits=(0.0, 1.0), percent=True),
}


@chart(
    title="Sign agreement by layer",
    question="In which layers do experts agree, beyond what random signs would give?",
    columns=(
        "tensor", "order", "section", "role", "part", "space", "title", "mean", "null", "excess", "kept", "positions",
    ),
    rows=("space", "tensor"),
    picks=("space", "tensor"),
    empty="No sign agreement was measured for these experts.",
)  # fmt: skip
def sign_layers(
    table: pd.DataFrame,
    *,
    value: str = "excess",
    selected: tuple[str | None, str | None] = (None, None),
    limits: tuple[float, float] | None = None,
    present: bool = False,
) -> go.Figure:
    """A heat map, spaces by layers in forward order.

    tensor, order (model order), section ("block 0" …, "output"), role, part (kind of layer), space, title (of the
    space), mean (agreement, 0.5 to 1), null (that of random signs with the same numbers of votes), excess (their
    difference), kept (share of all entries that vote), positions (with a vote). ``value`` says which is drawn;
    ``selected`` outlines a (space, tensor); ``limits`` fixes the color range.
    """
    scale = SCALES[one_of("value", value, tuple(SCALES))]
    titles = dict(zip(table["space"].astype(str), table["title"], strict=True))
    spaces = in_order(table["space"])
    colors = depth.Scale(scale.title, scale.log, limits or scale.limits, scale.percent, scale.diverging)
    names = [str(titles[space]) for space in spaces]
    fig, columns = depth.heat_map(table, "space", value, colors, _hover, selected, names)
    alt = _alt(table, names, columns)
    return theme.finish(fig, "sign_layers", alt, depth.height(len(spaces)), present, f"{value}:{len(columns.names)}")


def _hover(row: dict[Any, Any]) -> str:
    return (
        f"<b>{short_name(row['tensor'])}</b><br>{safe_text(row['title'])}: mean agreement {percent(row['mean'])}<br>"
        f"random signs {percent(row['null'])}, excess {points(row['excess'])}<br>"
        f"density {percent(row['kept'])}, {count(row['positions'])} positions with a vote"
    )


def points(difference: float) -> str:
    """A difference of shares in percentage points: 0.0123 as "+1.2 points"; "—" where there is none."""
    return f"{100 * difference:+.1f} points" if np.isfinite(difference) else "—"


def _alt(table: pd.DataFrame, names: list[str], columns: depth.Columns) -> str:
    words = f"Sign agreement in {plural(len(columns.names), 'layer')} and {plural(len(names), 'space')}."
    if (most := depth.largest(table, "excess")) is None:
        return words
    return (
        f"{words} Farthest above random signs: {clean_text(most['tensor'])}, {clean_text(most['title'])}, "
        f"{percent(most['mean'])} instead of {percent(most['null'])}."
    )
