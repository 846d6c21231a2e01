"""A chart as it stands on a page, whose files, link and entry in the report are made on a click."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from app import page_text
from app.reading import figures
from app.reading.report_sources import Of
from viz.report.report_contents import ReportView, Source

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go


@dataclass(frozen=True, slots=True)
class ShownChart:
    """The chart ``key`` of a table and options in which experts have names; ``back`` is {name: key} of them.

    ``name`` is the files' name. ``words`` are Markdown of the page about the chart, ``cautions`` about all charts.
    ``place`` is the view's, ``of`` are the runs and sweeps that the chart shows, ``heading`` is the report's.
    """

    key: str
    table: pd.DataFrame
    options: Mapping[str, Any]
    back: Mapping[str, str]
    name: str
    words: str
    place: str
    cautions: str = ""
    of: Of = None
    heading: str = ""

    @property
    def caption(self) -> str:
        """The words as plain text."""
        return page_text.plain_text(self.words.strip())

    def figure(self) -> go.Figure:
        """The figure to save, which has a light ground. It must not be changed."""
        return figures.figure(self.key, self.table, {"present": False, **self.options})

    def view(self, sources: Sequence[Source]) -> ReportView:
        """The chart as a view of the report."""
        caption = page_text.plain_text(f"{self.words} {self.cautions}".strip())
        ids = tuple(source.id for source in sources)
        return ReportView(self.key, self.table, dict(self.options), self.heading, "", caption, self.place, ids)
