"""What a snapshot contains, as plain data for its templates: texts are HTML where their type says so, else plain."""

from __future__ import annotations

from dataclasses import dataclass, field

from markupsafe import Markup

from app.snapshot.static_figures import StaticFigure


@dataclass(frozen=True)
class StaticAnswer:
    """One answer of a question, and what is answered to it."""

    text: Markup
    right: bool
    reply: Markup


@dataclass(frozen=True)
class StaticGuess:
    """What is guessed: ``kind`` with its bounds, options or places, and the truth as lines of label and value.

    ``order`` are the numbers of the options in their true order, for an order.
    """

    kind: str
    low: float
    high: float
    unit: str
    options: tuple[Markup, ...]
    at: tuple[str, ...]
    axis: str
    most_marks: int
    truth: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class StaticPaper:
    """What a paper reports beside our facts, and the verdict."""

    source: str
    where: str
    unit: str
    rows: tuple[tuple[str, str, str], ...]  # name, the paper's number, ours
    verdict: str


@dataclass(frozen=True)
class StaticStep:
    """One step with its figure, and the one that *Show me* sets; ``cells`` is the map whose cells are to be marked.

    ``fulfils`` says of each value of the figure's slider whether it fulfils the goal; it may be empty.
    """

    number: int
    kind: str
    figure: StaticFigure
    shown_figure: StaticFigure | None
    cells: StaticFigure | None
    slider_fulfils: tuple[bool, ...]
    say: Markup
    ask: Markup
    hint: Markup
    guess: StaticGuess | None
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
    after: tuple[tuple[str, str], ...]  # key and title of lessons that are best done before, and that are here
    steps: tuple[StaticStep, ...]
    figures: tuple[StaticFigure, ...]


@dataclass(frozen=True)
class Site:
    """Everything in a snapshot. ``date`` is written on every page, ``repository`` is an address or empty."""

    title: str
    date: str
    repository: str
    lessons: tuple[StaticLesson, ...]
    views: tuple[StaticFigure, ...]
    made_with: tuple[tuple[str, str], ...] = field(default=())
