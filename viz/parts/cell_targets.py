"""The cells of a heat map: their rows in a table, invisible marks that take clicks, the frame of the selected one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from viz import theme
from viz.chart import ChartError
from viz.drawing import Trace, bar
from viz.figure_text import identifier

CellPosition = tuple[str | None, str | None]  # names of a row and a column; one name for a whole row or column
NO_CELL: CellPosition = (None, None)


def every_cell(table: pd.DataFrame, sides: Mapping[str, Sequence[Any]]) -> pd.DataFrame:
    """The table with one row for each cell, row by row; ``sides`` maps the two columns of names to all their names.

    Raises ChartError for a missing pair.
    """
    pairs, indexed = pd.MultiIndex.from_product([*sides.values()], names=list(sides)), table.set_index(list(sides))
    if len(missing := pairs[~pairs.isin(indexed.index)]):
        pair = ", ".join(f"{side} {name!r}" for side, name in zip(sides, min(missing), strict=True))
        raise ChartError(f"there is no row of {pair}; every pair needs one")
    return indexed.reindex(pairs).reset_index()


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

    ``cells`` are the (row, column) pairs that take clicks, if not all do. ``height`` is the height of a bar in rows.

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


def outline(rows: Sequence[str], columns: Sequence[str], selected: CellPosition, **fields: Any) -> list[dict[str, Any]]:
    """The frame around the selected (row, column), around a whole row or column if there is no other name.

    Empty if the map has neither. ``fields`` are those of plotly's shape.
    """
    row, column = (
        names.index(name) if name in names else None for names, name in zip((rows, columns), selected, strict=True)
    )
    if row is None and column is None:
        return []
    (x0, x1), (y0, y1) = (
        (-0.5, len(names) - 0.5) if index is None else (index - 0.5, index + 0.5)
        for names, index in ((columns, column), (rows, row))
    )
    line = {"color": theme.ACCENT, "width": 3}
    return [{"type": "rect", "x0": x0, "x1": x1, "y0": y0, "y1": y1, "line": line, "name": "selected", **fields}]
