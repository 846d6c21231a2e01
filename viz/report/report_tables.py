"""A chart's table as text in cells, and as HTML, cut to a readable number of rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from viz.figure_text import clean_text, plural
from viz.report import templates

MAX_ROWS = 1000  # rows
NUMERIC_KINDS = "biuf"


@dataclass(frozen=True)
class TableText:
    """A table as text: its size, columns and rows. A cell is a pair of plain text and CSS class, which may be empty."""

    size: str
    columns: list[tuple[str, str]]
    rows: list[list[tuple[str, str]]]


def table_text(table: pd.DataFrame) -> TableText | None:
    """The text of a table's first 1,000 rows; None if it has no rows."""
    if table.empty:
        return None
    rows, columns = plural(len(table), "row"), plural(len(table.columns), "column")
    cut = f", of which the first {MAX_ROWS:,} are shown" if len(table) > MAX_ROWS else ""
    first_rows = table.head(MAX_ROWS)
    kinds = ["number" if first_rows[name].dtype.kind in NUMERIC_KINDS else "" for name in first_rows.columns]
    return TableText(
        f"{rows}, {columns}{cut}",
        [(clean_text(name), kind) for name, kind in zip(first_rows.columns, kinds, strict=True)],
        [
            [(_format_cell(value), kind) for value, kind in zip(row, kinds, strict=True)]
            for row in first_rows.itertuples(index=False, name=None)
        ],
    )


def table_html(table: pd.DataFrame) -> str:
    """The HTML of a table, folded under a line that opens it; empty if it has no rows."""
    text = table_text(table)
    return templates.fill_template("table.html.j2", table=text) if text else ""


def _format_cell(value: Any) -> str:
    """A cell as text: six digits of a number; empty if it has no value."""
    if isinstance(value, float | np.floating):
        return f"{value:.6g}" if math.isfinite(value) else ""
    if value is None or value is pd.NA:
        return ""
    return clean_text(value)
