"""Invisible marks over the cells of a heat map, which by itself gives the app no clicks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from viz.text import identifier


def click_targets(
    rows: Sequence[str], columns: Sequence[str], texts: Sequence[str], name: str, axis: str = "y"
) -> go.Bar:
    """A transparent bar over every cell, row by row: hover ``texts``, and the names (row, column) as customdata.

    Bars, because a bar is hit exactly where it lies. Point markers are hit within a radius of at least 3 px, so that
    cells narrower than that would hand back a neighbor. The figure needs ``barmode="overlay"``.
    """
    row, column = np.divmod(np.arange(len(rows) * len(columns)), len(columns))
    names = [identifier(label) for label in columns]
    return go.Bar(
        x=column.astype(np.float32), y=np.ones(len(row), np.float32), base=(row - 0.5).astype(np.float32), width=1,
        customdata=[[identifier(label), other] for label in rows for other in names],
        text=texts, textposition="none", hovertemplate="%{text}<extra></extra>", name=name, xaxis="x", yaxis=axis,
        marker={"opacity": 0, "line": {"width": 0}},
    )  # fmt: skip
