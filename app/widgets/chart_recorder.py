"""Records the charts that pages draw, for snapshots.

A page runs in its own thread, so the list belongs to the process: only one view is recorded at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from app.reading.report_sources import list_sources
from app.saving.shown_chart import ShownChart
from merging.base.errors import MergingError
from viz.report.report_contents import ReportView, Source

RecordedChart = tuple[ReportView, tuple[Source, ...]]
_lists: list[list[RecordedChart]] = []


@contextmanager
def record_charts() -> Iterator[list[RecordedChart]]:
    """The charts that are drawn in this process while the block runs, in their order."""
    recorded: list[RecordedChart] = []
    _lists.append(recorded)
    try:
        yield recorded
    finally:
        _lists.remove(recorded)


def note_chart(chart: ShownChart) -> None:
    """Record a chart, if charts are being recorded."""
    if not _lists:
        return
    try:
        sources = tuple(list_sources(chart.table, chart.options, chart.sources, chart.view_address))
    except MergingError:  # a run that was deleted meanwhile
        sources = ()
    for recorded in _lists:
        recorded.append((chart.make_view(sources), sources))
