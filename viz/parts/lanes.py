"""Rows of names, one below the other, with a lane for each run in every row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from viz import theme
from viz.drawing import Trace
from viz.parts import series


class Lanes(NamedTuple):
    """The runs (or other series) with a lane in each row, and the heights of a lane and of a row, px."""

    runs: Sequence[str]
    lane: float
    row: float

    def mark_positions(self, run: str, names: Iterable[str], rows: Sequence[str]) -> series.Values:
        """Positions (marks,) of the run's marks on an axis of ``rows``; ``names`` are the marks' rows."""
        offset = (self.runs.index(run) - (len(self.runs) - 1) / 2) * self.lane / self.row
        return np.array([rows.index(name) + offset for name in names], np.float32)


def dots(
    lanes: Lanes,
    table: pd.DataFrame,
    rows: Sequence[str],
    value: str,
    mark_styles: dict[str, theme.MarkStyle],
    hover: str,
    *,
    picks: Sequence[str] = ("run", "task"),
    axis: str = "",
    **fields: Any,
) -> Iterable[Trace]:
    """The marks of every run in its lane of the rows of tasks, with an interval if the table has low and high.

    ``axis`` is the number of the y axis; see ``series.marks``.
    """
    for run, run_rows, entry in series.rows_by_name(series.finite_rows(table, value), "run", lanes.runs):
        mark_style = mark_styles[run]
        # A thin yellow line is invisible.
        interval_color = theme.FADED if mark_style.color == theme.YELLOW else mark_style.color
        yield series.marks(
            run_rows, value, lanes.mark_positions(run, run_rows["task"], rows), mark_style, hover, picks=picks,
            yaxis=f"y{axis}", error_x=series.interval(run_rows, value, interval_color), **entry, **fields,
        )  # fmt: skip


def tints(rows: int, axis: str = "") -> list[dict[str, Any]]:
    """A tint behind every other row, which guides the eye along it."""
    tint = {"fillcolor": theme.PANEL, "line": {"width": 0}, "layer": "below"}
    return [_row_rectangle(row, axis) | tint for row in range(0, rows, 2)]


def selection_frame(rows: Sequence[str], selected: str | None, axis: str = "") -> list[dict[str, Any]]:
    """The frame around the row ``selected``; none if there is no such row. For ``axis`` see ``dots``."""
    frame = {"line": {"color": theme.ACCENT, "width": 2}, "name": "selected"}
    return [_row_rectangle(rows.index(selected), axis) | frame] if selected in rows else []


def _row_rectangle(row: int, axis: str) -> dict[str, Any]:
    return {
        "type": "rect", "xref": "x domain", "yref": f"y{axis}", "x0": 0, "x1": 1, "y0": row - 0.5, "y1": row + 0.5,
    }  # fmt: skip
