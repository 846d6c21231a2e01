"""The buttons under a chart that save its numbers: what is drawn, mark by mark, and the table behind it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import streamlit as st

from app.reading import names
from merging.files import tables
from viz import theme

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

BUTTONS = {
    "Data (CSV)": "What the chart draws: a row for each mark.",
    "Table (CSV)": "All columns of the table behind the chart.",
}
SOURCE = "source"  # a column with the line of provenance in its first row, where readers of CSV expect no comment


def buttons(
    key: str, figure: go.Figure, table: pd.DataFrame, back: Mapping[str, str], *, name: str, source: str, of: str = ""
) -> None:
    """Draw the buttons of the chart ``key``; ``back`` is {name: key} of the experts that it shows by name.

    ``of`` keeps the buttons of several charts of one kind apart.
    """
    contents = {"": lambda: drawn(key, figure, back, source), "_table": lambda: whole(table, back, source)}
    for (label, about), (ending, content) in zip(BUTTONS.items(), contents.items(), strict=True):
        st.download_button(
            label, content, f"{theme.file_name(name)}{ending}.csv", "text/csv", key=f"csv{ending}_{key}{of}",
            on_click="ignore", type="tertiary", icon=":material/table:", help=about,
        )  # fmt: skip


def drawn(key: str, figure: go.Figure, back: Mapping[str, str], source: str) -> bytes:
    """The marks of a figure as CSV."""
    from viz.marks import marks
    from viz.registry import find

    return whole(marks(figure, find(key).picks), back, source)


def whole(table: pd.DataFrame, back: Mapping[str, str], source: str) -> bytes:
    """A table as CSV, with experts' keys and with the line that says where it is from."""
    keyed = names.keyed(table, back)
    return tables.csv_bytes(keyed.assign(**{SOURCE: [source, *[""] * (len(keyed) - 1)][: len(keyed)]}))
