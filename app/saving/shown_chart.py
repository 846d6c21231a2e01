"""A chart on a page; a click makes its files, its link and its entry in the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from app import page_text
from app.reading import figures
from app.reading.report_sources import ChartSources
from viz.report.report_contents import ReportView, Source

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go


@dataclass(frozen=True, slots=True)
class ShownChart:
    """The chart ``key`` with its table and options, which show experts by name; ``keys_by_name`` maps names to keys.

    ``name`` begins the files' names. ``words`` is the page's Markdown about this chart, ``cautions`` the Markdown
    about all its charts. ``view_address`` is the relative address of the view, ``sources`` are the runs and sweeps that
    the chart shows, ``heading`` is the chart's heading in the report.
    """

    key: str
    table: pd.DataFrame
    options: Mapping[str, Any]
    keys_by_name: Mapping[str, str]
    name: str
    words: str
    view_address: str
    cautions: str = ""
    sources: ChartSources = None
    heading: str = ""

    @property
    def caption(self) -> str:
        """The words as plain text."""
        return page_text.plain_text(self.words.strip())

    def draw_figure(self) -> go.Figure:
        """The figure for files, on a light ground and not in the type of a projector. Shared: do not change it."""
        return figures.draw_figure(self.key, self.table, {"present": False, **self.options})

    def make_view(self, view_sources: Sequence[Source]) -> ReportView:
        """The chart as a view of the report."""
        caption = page_text.plain_text(f"{self.words} {self.cautions}".strip())
        ids = tuple(source.id for source in view_sources)
        return ReportView(self.key, self.table, dict(self.options), self.heading, "", caption, self.view_address, ids)
