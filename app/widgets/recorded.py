"""Notes what the one chart function was asked to draw, for what writes views down: the snapshot.

A page runs in a thread of its own, so the list is one of the whole process: views are recorded one at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from app.reading.report_sources import Of, sources_of
from app.session import state
from app.text import plain
from app.widgets.page import cautions
from merging.errors import MergingError
from viz.report.contents import ReportView, Source

if TYPE_CHECKING:
    import pandas as pd

Drawn = tuple[ReportView, tuple[Source, ...]]
_lists: list[list[Drawn]] = []


@contextmanager
def recording() -> Iterator[list[Drawn]]:
    """The charts that are drawn in this process while the block runs, in their order."""
    drawn: list[Drawn] = []
    _lists.append(drawn)
    try:
        yield drawn
    finally:
        _lists.remove(drawn)


def note(key: str, table: pd.DataFrame, options: Mapping[str, Any], words: str, of: Of, heading: str = "") -> None:
    """Note one chart while charts are recorded. ``words`` are Markdown of the page about it, ``heading`` is plain."""
    if not _lists:
        return
    place = state.place()
    caption = plain(f"{words} {cautions()}".strip())
    try:
        sources = tuple(sources_of(table, options, of, place))
    except MergingError:  # a run that was deleted meanwhile
        sources = ()
    view = ReportView(key, table, dict(options), heading, "", caption, place)
    view = replace(view, sources=tuple(source.id for source in sources))
    for drawn in _lists:
        drawn.append((view, sources))
