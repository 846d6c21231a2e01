"""The buttons under a chart that save its numbers: those of every mark, and the table behind the chart."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import streamlit as st

from app.reading import expert_names
from app.saving import provenance
from app.saving.shown_chart import ShownChart
from app.session import benchmark_choice
from merging.base.files import tables
from viz import theme

if TYPE_CHECKING:
    import pandas as pd

BUTTON_HELP = {
    "Data": "The chart's numbers as CSV: a row for each mark.",
    "Table": "All columns of the table behind the chart, as CSV.",
}
# A column with the line of provenance in its first row, because readers of CSV expect no comments.
SOURCE_COLUMN = "source"


def draw_csv_buttons(chart: ShownChart, key_suffix: str = "") -> None:
    """Draw the buttons of a chart; ``key_suffix`` makes their keys unique among charts of one kind."""
    for (label, help_text), (suffix, make_csv) in zip(
        BUTTON_HELP.items(), {"": marks_csv, "_table": table_csv}.items(), strict=True
    ):
        st.download_button(
            label, benchmark_choice.bind_download(partial(make_csv, chart)),
            f"{theme.file_name(chart.name)}{suffix}.csv", "text/csv",
            key=f"csv{suffix}_{chart.key}{key_suffix}", on_click="ignore", type="tertiary",
            icon=":material/table:", help=help_text,
        )  # fmt: skip


def marks_csv(chart: ShownChart) -> bytes:
    """The marks of a chart as CSV."""
    from viz.chart_registry import find
    from viz.marks import marks

    return csv_with_source(
        marks(chart.draw_figure(), find(chart.key).picks), chart.keys_by_name, provenance.provenance_line(chart)
    )


def table_csv(chart: ShownChart) -> bytes:
    """The table behind a chart as CSV."""
    return csv_with_source(chart.table, chart.keys_by_name, provenance.provenance_line(chart))


def csv_with_source(table: pd.DataFrame, keys_by_name: Mapping[str, str], source: str) -> bytes:
    """A table as CSV, with experts' keys and with the line of provenance."""
    keyed = expert_names.restore_keys(table, keys_by_name)
    return tables.csv_bytes(keyed.assign(**{SOURCE_COLUMN: [source, *[""] * (len(keyed) - 1)][: len(keyed)]}))
