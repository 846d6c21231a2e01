"""The contents of a snapshot as plain data for its templates: texts of type Markup are HTML, others plain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from markupsafe import Markup

from app.snapshot.static_figures import StaticFigure
from merging.teaching.lesson import Guess


@dataclass(frozen=True)
class StaticAnswer:
    """One answer of a question, and the reply to it."""

    text: Markup
    right: bool
    reply: Markup


@dataclass(frozen=True)
class StaticPaper:
    """A paper's numbers next to ours, and the verdict."""

    source: str
    where: str
    unit: str
    rows: tuple[tuple[str, str, str], ...]  # name, the paper's number, ours
    verdict: str


@dataclass(frozen=True)
class StaticStep:
    """One step with its figure and the figure after *Show me*; ``cells`` is the map whose cells the learner marks.

    A step on the page Mix has the address of a desk in place of a figure. ``slider_fulfils`` has a flag for each value
    of the figure's slider: whether it reaches the goal. It may be empty.
    """

    number: int
    kind: str
    figure: StaticFigure | None
    desk: str
    shown_figure: StaticFigure | None
    cells: StaticFigure | None
    slider_fulfils: tuple[bool, ...]
    say: Markup
    ask: Markup
    hint: Markup
    guess: Guess | None
    options: tuple[Markup, ...]  # of the guess
    truth: tuple[tuple[str, str], ...]  # the measured values of the guess, by label
    paper: StaticPaper | None
    answers: tuple[StaticAnswer, ...]


@dataclass(frozen=True)
class StaticLesson:
    """One lesson with every figure that its steps show, each once."""

    key: str
    title: str
    question: str
    minutes: int
    level: str
    after: tuple[tuple[str, str], ...]  # key and title of earlier lessons in this snapshot
    steps: tuple[StaticStep, ...]
    figures: tuple[StaticFigure, ...]


@dataclass(frozen=True)
class Site:
    """Everything in a snapshot. ``date`` is written on every page, ``repository`` is an address or empty.

    ``desk`` are the files of the page Mix, if a lesson has a step on it.
    """

    title: str
    date: str
    repository: str
    lessons: tuple[StaticLesson, ...]
    views: tuple[StaticFigure, ...]
    made_with: tuple[tuple[str, str], ...] = field(default=())
    desk: Mapping[str, bytes] = field(default_factory=dict)
