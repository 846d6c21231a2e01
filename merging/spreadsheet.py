"""Tables for other programs: CSV in which no cell is a formula to a spreadsheet."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_bytes(table: pd.DataFrame) -> bytes:
    """The table as CSV; a text that a spreadsheet would compute begins with an apostrophe."""
    safe = table.copy()
    for name in safe.columns:
        if safe[name].dtype.kind not in "biufc":
            safe[name] = [_inert(value) for value in safe[name]]
    safe.columns = [_inert(name) for name in safe.columns]
    out = io.StringIO()
    safe.to_csv(out, index=False, quoting=csv.QUOTE_MINIMAL, lineterminator="\n")
    return out.getvalue().encode()


def _inert(value: object) -> str:
    text = "" if value is None else str(value)
    return f"'{text}" if text.startswith(FORMULA) else text
