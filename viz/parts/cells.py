"""Invisible marks over the cells of a heat map, which gives the app no clicks without them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from viz.drawing import Trace, bar
from viz.text import identifier


def click_targets(
    rows: Sequence[str],
    columns: Sequence[str],
    texts: Sequence[str],
    name: str,
    axis: str = "y",
    cells: Sequence[tuple[int, int]] | None = None,
    height: int = 1,
) -> Trace:
    """A transparent bar over every cell, row by row: hover ``texts``, and the names (row, column) as customdata.

    ``cells`` are the (row, column) pairs that take clicks, if not all do. ``height`` is that of a bar in rows.

    A bar takes clicks exactly where it is drawn. Point markers take them within a radius of at least 3 px, so that a
    click on a narrower cell would return a neighbor. The figure needs ``barmode="overlay"``.
    """
    pairs = [(row, column) for row in range(len(rows)) for column in range(len(columns))] if cells is None else cells
    row, column = np.array(pairs, int).reshape(-1, 2).T
    return bar(
        x=column.astype(np.float32), y=np.full(len(row), height, np.float32), base=(row - 0.5).astype(np.float32),
        width=1,
        customdata=[[identifier(rows[i]), identifier(columns[j])] for i, j in pairs],
        text=texts, textposition="none", hovertemplate="%{text}<extra></extra>", name=name, xaxis="x", yaxis=axis,
        marker={"opacity": 0, "line": {"width": 0}},
    )  # fmt: skip
