"""A chart's table as HTML: folded away, numbers in columns, not longer than anybody would read."""

from __future__ import annotations

import html
import math
from typing import Any

import numpy as np
import pandas as pd

from viz.text import clean_text, plural

MOST = 1000  # rows
NUMERIC = "biuf"


def table_html(table: pd.DataFrame) -> str:
    """The table under a line that unfolds it; empty if it has no rows."""
    if table.empty:
        return ""
    rows, columns = plural(len(table), "row"), plural(len(table.columns), "column")
    cut = f", of which the first {MOST:,} are here" if len(table) > MOST else ""
    shown = table.head(MOST)
    kinds = ["number" if shown[name].dtype.kind in NUMERIC else "" for name in shown.columns]
    head = "".join(_cell("th", kind, clean_text(name)) for name, kind in zip(shown.columns, kinds, strict=True))
    head = head.replace("_", "_<wbr>")  # where a narrow page may break a name
    body = "\n".join(
        "<tr>" + "".join(_cell("td", kind, _shown(value)) for value, kind in zip(row, kinds, strict=True)) + "</tr>"
        for row in shown.itertuples(index=False, name=None)
    )
    return (
        f"<details>\n<summary>The table that is drawn: {rows}, {columns}{cut}</summary>\n"
        f'<div class="scroll"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>\n'
        "</details>\n"
    )


def _cell(tag: str, kind: str, text: str) -> str:
    name = f' class="{kind}"' if kind else ""
    return f"<{tag}{name}>{html.escape(text)}</{tag}>"


def _shown(value: Any) -> str:
    """A cell as text: six digits of a number, nothing where there is none."""
    if isinstance(value, float | np.floating):
        return f"{value:.6g}" if math.isfinite(value) else ""
    if value is None or value is pd.NA:
        return ""
    return clean_text(value)
