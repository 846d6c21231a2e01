"""What a report holds, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


class ReportError(ValueError):
    """A report cannot be handed out; the text says which view is at fault and what to change.

    ``word`` is the name that was found, where it may as well be a word like any other; else it is empty.
    """

    def __init__(self, message: str, word: str = "") -> None:
        super().__init__(message)
        self.word = word


@dataclass(frozen=True)
class Source:
    """A run, or whatever else figures are of: facts and digests of its inputs by name, and its recipe as YAML."""

    id: str
    kind: str  # "Run", "Sweep"
    title: str
    facts: tuple[tuple[str, str], ...]
    digests: tuple[tuple[str, str], ...] = ()
    recipe: str = ""


@dataclass(frozen=True)
class ReportView:
    """One figure with what is said about it; all texts are plain and may be anybody's.

    ``key``, ``table`` and ``options`` are as ``viz.draw`` takes them. ``title`` is its heading, if it is not the
    question of the chart; ``place`` is the page and the query that show it in the app; ``sources`` are ids.
    """

    key: str
    table: pd.DataFrame = field(repr=False, compare=False)
    options: Mapping[str, Any] = field(default_factory=dict, compare=False)
    title: str = ""
    note: str = ""
    caption: str = ""
    place: str = ""
    sources: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """What a document holds. ``made_with`` are names and versions of programs; there is no date and no author in it."""

    title: str
    introduction: str
    views: tuple[ReportView, ...]
    sources: tuple[Source, ...]
    made_with: tuple[tuple[str, str], ...] = ()
    tables: bool = True
    recipes: bool = True
