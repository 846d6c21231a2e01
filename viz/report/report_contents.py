"""What a report contains, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go


class ReportError(ValueError):
    """A report cannot be written; the text names the view at fault and the change that helps.

    ``word`` is the private name in the report, which may also be an ordinary word; it is empty for any other problem.
    """

    def __init__(self, message: str, word: str = "") -> None:
        super().__init__(message)
        self.word = word


@dataclass(frozen=True)
class Source:
    """A run or a sweep that figures show: facts and digests of its inputs by name, and its recipe as YAML."""

    id: str
    kind: str  # "Run", "Sweep"
    title: str
    facts: tuple[tuple[str, str], ...]
    digests: tuple[tuple[str, str], ...] = ()
    recipe: str = ""


@dataclass(frozen=True)
class ReportView:
    """One figure with its texts, which are plain and untrusted.

    ``key``, ``table`` and ``options`` are arguments of ``viz.draw``. ``title`` is its heading; if empty, the chart's
    question is. ``place`` is the address in the app: the page and the query that show the view. ``sources`` are ids of
    runs and sweeps.
    """

    key: str
    table: pd.DataFrame = field(repr=False, compare=False)
    options: Mapping[str, Any] = field(default_factory=dict, compare=False)
    title: str = ""
    note: str = ""
    caption: str = ""
    place: str = ""
    sources: tuple[str, ...] = ()

    def draw(self) -> go.Figure:
        """The figure, without the large type of a projector."""
        from viz.chart_registry import find

        return find(self.key)(self.table, **{name: value for name, value in self.options.items() if name != "present"})


@dataclass(frozen=True)
class Entry:
    """A learner's answer at one step of a lesson, and the measurement. All texts are plain and untrusted."""

    heading: str
    question: str
    said: str = ""
    measured: str = ""


@dataclass(frozen=True)
class Report:
    """What a report contains: no date and no author. ``made_with`` lists names and versions of programs.

    A learner's sheet is a report with ``entries``, and with ``kept``: JSON from which the app restores the entries.
    """

    title: str
    introduction: str
    views: tuple[ReportView, ...]
    sources: tuple[Source, ...]
    made_with: tuple[tuple[str, str], ...] = ()
    tables: bool = True
    recipes: bool = True
    entries: tuple[Entry, ...] = ()
    kept: str = ""
