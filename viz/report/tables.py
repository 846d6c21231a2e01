"""A chart's table as text in cells, and as HTML: numbers in columns, not longer than anybody would read."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from viz.report import templates
from viz.text import clean_text, plural

MOST = 1000  # rows
NUMERIC = "biuf"


@dataclass(frozen=True)
class TableText:
    """A table in words: its size, its columns and its rows; every cell is a plain text and its class, or no class."""

    size: str
    columns: list[tuple[str, str]]
    rows: list[list[tuple[str, str]]]


def table_text(table: pd.DataFrame) -> TableText | None:
    """The texts of a table, of its first 1,000 rows; None if it has no rows."""
    if table.empty:
        return None
    rows, columns = plural(len(table), "row"), plural(len(table.columns), "column")
    cut = f", of which the first {MOST:,} are here" if len(table) > MOST else ""
    shown = table.head(MOST)
    kinds = ["number" if shown[name].dtype.kind in NUMERIC else "" for name in shown.columns]
    return TableText(
        f"{rows}, {columns}{cut}",
        [(clean_text(name), kind) for name, kind in zip(shown.columns, kinds, strict=True)],
        [
            [(_shown(value), kind) for value, kind in zip(row, kinds, strict=True)]
            for row in shown.itertuples(index=False, name=None)
        ],
    )


def table_html(table: pd.DataFrame) -> str:
    """The table under a line that unfolds it; empty if it has no rows."""
    text = table_text(table)
    return templates.write("table.html.j2", table=text) if text else ""


def _shown(value: Any) -> str:
    """A cell as text: six digits of a number, nothing where there is none."""
    if isinstance(value, float | np.floating):
        return f"{value:.6g}" if math.isfinite(value) else ""
    if value is None or value is pd.NA:
        return ""
    return clean_text(value)
