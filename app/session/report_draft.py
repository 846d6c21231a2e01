"""The report under construction: its views, their order, titles and notes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from merging.base.text import size_text
from viz.report.report_contents import Report, ReportView, Source

if TYPE_CHECKING:
    import pandas as pd

MAX_VIEWS = 30
MAX_VIEW_BYTES, MAX_REPORT_BYTES = 4_000_000, 30_000_000  # bytes of one view, and of all views, in the document
FULL_MESSAGE = f"The report holds {MAX_VIEWS} views, and no more are allowed. Remove one on the Report page."
TOO_LARGE_MESSAGE = "This chart would take {0} in the report; at most {1} are allowed. Choose less data."
NO_ROOM_MESSAGE = (
    "With this chart the report would take {0}; at most {1} are allowed. Remove a view on the Report page."
)


@dataclass(frozen=True)
class StoredView:
    """A view in the report. ``number`` identifies it in the report, ``part`` its table in the store.

    ``size`` is the view's size in the document, bytes.
    """

    number: int
    part: str
    view: ReportView
    size: int


@dataclass
class ReportDraft:
    """The contents of the report so far; ``sources`` are the sources of all views, by id.

    Every change happens within the context ``changing``, with which the session reads the stored report first and
    stores it afterwards.
    """

    title: str = ""
    introduction: str = ""
    tables: bool = True
    recipes: bool = True
    views: list[StoredView] = field(default_factory=list)
    sources: dict[str, Source] = field(default_factory=dict)
    allowed: set[str] = field(default_factory=set)  # private names that the user allowed as ordinary words
    refused: dict[str, str] = field(default_factory=dict)  # key of a chart whose last attempt was refused -> reason
    changing: Callable[[], AbstractContextManager[object]] = field(default=nullcontext, repr=False, compare=False)

    @property
    def full(self) -> bool:
        """Whether no view can be added."""
        return len(self.views) >= MAX_VIEWS

    @property
    def size(self) -> int:
        """Bytes that all views take in the document."""
        return sum(stored.size for stored in self.views)

    def find(self, key: str, table: pd.DataFrame, options: Mapping[str, Any]) -> StoredView | None:
        """The view with this chart, table and options, if the report has it."""
        for stored in self.views:
            view = stored.view
            if view.key == key and is_equal(view.options, options) and is_equal(view.table, table):
                return stored
        return None

    def refusal(self, size: int) -> str:
        """Why a view of that size cannot be added; empty if it can."""
        if self.full:
            return FULL_MESSAGE
        if size > MAX_VIEW_BYTES:
            return TOO_LARGE_MESSAGE.format(size_text(size), f"{MAX_VIEW_BYTES / 1e6:g} MB")
        if self.size + size > MAX_REPORT_BYTES:
            return NO_ROOM_MESSAGE.format(size_text(self.size + size), f"{MAX_REPORT_BYTES / 1e6:g} MB")
        return ""

    def add(self, view: ReportView, size: int, sources: Sequence[Source]) -> None:
        """Put a view at the end."""
        with self.changing():
            number = 1 + max((stored.number for stored in self.views), default=-1)
            self.views.append(StoredView(number, uuid4().hex, view, size))
            self.sources |= {source.id: source for source in sources}

    def remove(self, number: int) -> None:
        """Remove a view, and the sources that no other view has."""
        with self.changing():
            self.views = [stored for stored in self.views if stored.number != number]
            used_sources = {key for stored in self.views for key in stored.view.sources}
            self.sources = {key: source for key, source in self.sources.items() if key in used_sources}

    def move(self, number: int, offset: int) -> None:
        """Move a view up (-1) or down (1)."""
        with self.changing():
            for index in self._find_indices(number):
                target = min(max(index + offset, 0), len(self.views) - 1)
                self.views[index], self.views[target] = self.views[target], self.views[index]

    def set_text(self, number: int, **words: str) -> None:
        """Replace the title or the note of a view."""
        with self.changing():
            for index in self._find_indices(number):
                self.views[index] = replace(self.views[index], view=replace(self.views[index].view, **words))

    def set_field(self, name: str, value: str | bool) -> None:
        """Replace the title or the introduction, or whether tables and recipes are included."""
        with self.changing():
            setattr(self, name, value)

    def allow(self, word: str) -> None:
        """Allow a private name as an ordinary word."""
        with self.changing():
            self.allowed.add(word)

    def take_over(self, other_draft: ReportDraft) -> None:
        """Copy all stored fields of another draft."""
        for name in ("title", "introduction", "tables", "recipes", "views", "sources", "allowed"):
            setattr(self, name, getattr(other_draft, name))

    def report(self, made_with: Sequence[tuple[str, str]]) -> Report:
        """The current report."""
        views = tuple(stored.view for stored in self.views)
        order = dict.fromkeys(key for view in views for key in view.sources)
        sources = tuple(self.sources[key] for key in order if key in self.sources)
        return Report(self.title, self.introduction, views, sources, tuple(made_with), self.tables, self.recipes)

    def _find_indices(self, number: int) -> list[int]:
        """The index of a view, as a list; empty if the view is already removed, as after a double click."""
        return [index for index, stored in enumerate(self.views) if stored.number == number]


def is_equal(one: Any, other: Any) -> bool:
    """Whether two tables or options are equal, so that charts made of them are the same."""
    import pandas as pd

    if isinstance(one, pd.DataFrame):
        return one.equals(other)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(is_equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(is_equal(a, b) for a, b in zip(one, other, strict=True))
    plain = [value.item() if type(value).__module__ == "numpy" else value for value in (one, other)]
    return repr(plain[0]) == repr(plain[1])  # so that NaN equals NaN
