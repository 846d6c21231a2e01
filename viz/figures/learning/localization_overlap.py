"""How much the masks of two tasks share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from viz import theme
from viz.chart import chart, in_order
from viz.parts import depth, matrix
from viz.text import clean_text, percent, plural, safe_text


@chart(
    title="Overlap of the masks",
    question="Whose masks collide where they are stitched together?",
    columns=("first", "second", "share"),
    rows=("first", "second"),
    picks=("first", "second"),
    empty="There are no two masks to compare.",
)
def localization_overlap(table: pd.DataFrame, *, present: bool = False) -> go.Figure:
    """A matrix of experts: of the scalars that the row's mask keeps, the share that the column's mask keeps as well.

    first (expert, the row), second (expert, the column), share (fraction). The matrix is not symmetric, and its
    diagonal is empty.
    """
    others = table[table["first"].astype(str) != table["second"].astype(str)]
    names = in_order([*table["first"], *table["second"]])
    shares = {(str(row["first"]), str(row["second"])): float(row["share"]) for row in others.to_dict("records")}
    if not np.isfinite(list(shares.values())).any():
        return theme.notice("localization_overlap", "Nothing to draw: there are no two masks to compare.", present)
    values = matrix.grid(shares, names, names)
    texts = [
        _hover({"first": names[y], "second": names[x], "share": values[y, x]})
        for y, x in np.argwhere(np.isfinite(values)).tolist()
    ]
    rows, columns = (matrix.Side(title, names, names) for title in ("Mask of", "Also kept by"))
    scale = depth.Scale("shared of the<br>row's mask", log=False, percent=True)
    fig = matrix.draw(rows, columns, values, texts, scale)
    height = matrix.height(fig, len(names))
    return theme.finish(fig, "localization_overlap", _alt(shares, names), height, present, str(len(names)))


def _hover(row: dict[Any, Any]) -> str:
    return (
        f"<b>{safe_text(row['first'])} and {safe_text(row['second'])}</b><br>{percent(row['share'])} of what "
        f"{safe_text(row['first'])} keeps is kept by {safe_text(row['second'])} as well"
    )


def _alt(shares: dict[tuple[str, str], float], names: list[str]) -> str:
    finite = {pair: share for pair, share in shares.items() if np.isfinite(share)}
    first, second = max(finite, key=finite.__getitem__)
    return (
        f"Overlap of the masks of {plural(len(names), 'expert')}. It is largest for {clean_text(first, 40)}, of whose "
        f"mask {clean_text(second, 40)} keeps {percent(finite[first, second])} as well."
    )
