"""A lesson: a path through real views, with guesses, tasks and questions. Its texts refer to facts by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SAY, PREDICT, DO, EXPLAIN, CHECK, FREE = STEP_KINDS = ("say", "predict", "do", "explain", "check", "free")
NUMBER, CHOICE, ORDER, CURVE, CELLS = GUESS_KINDS = ("number", "choice", "order", "curve", "cells")
LEVELS = ("introductory", "intermediate", "research")
DESK_PAGE = "mix"  # whose sliders and meters stand in place of a chart
REFERENCES = ("pretrained", "experts", "multitask")  # models that facts may name, in addition to the lesson's runs


@dataclass(frozen=True)
class FactSpec:
    """A fact to compute: ``fact`` is its key in ``FACT_KINDS``, ``arguments`` are plain values."""

    fact: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Guess:
    """The input in which a learner states a guess before the truth is shown.

    A number has ``low``, ``high`` and ``unit``. A choice and an order have ``options``. A curve has a value from
    ``low`` to ``high`` at each position in ``at`` on the axis named ``axis``. Of cells, at most ``most`` can be marked.
    """

    kind: str
    low: float = 0.0
    high: float = 1.0
    unit: str = ""
    options: tuple[str, ...] = ()
    at: tuple[float, ...] = ()
    axis: str = ""
    most: int = 0


@dataclass(frozen=True)
class Goal:
    """The condition of a task: a fact, or a key of the address, is ``equal`` to a value or in [low, high].

    A bound that is None is not checked. Shares are fractions, even if a fact is shown in percent.
    """

    fact: FactSpec | None = None
    key: str = ""
    equal: str | float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class CheckAnswer:
    """One answer to a question; ``say`` is the reply to it."""

    text: str
    right: bool = False
    say: str = ""


@dataclass(frozen=True)
class Paper:
    """Numbers that a paper reports, ``says`` {name: number in ``unit``}, and our facts in the same order."""

    source: str
    where: str
    says: Mapping[str, float]
    unit: str
    ours: tuple[FactSpec, ...]


@dataclass(frozen=True)
class LessonStep:
    """One step, of one of ``STEP_KINDS``.

    ``page`` is the path of a page ("" is the page and view of the previous step), ``view`` its address: the keys and
    values after "?" in the browser, in which "@alias" stands for the id of a run. ``chart`` is the key of the step's
    chart (Mix has none), ``controls`` are the keys of the address whose controls stay visible in a presentation, and
    ``outline`` names parts of the chart. ``show`` has the values of the address that fulfil the goal. ``truth`` has one
    fact for a number and for cells, one for each option of a choice or an order, and one for each position of a curve.
    ``claims`` must hold for the texts to be true.
    """

    kind: str
    page: str = ""
    view: Mapping[str, str] = field(default_factory=dict)
    chart: str = ""
    controls: tuple[str, ...] = ()
    outline: tuple[str, ...] = ()
    say: str = ""
    ask: str = ""
    notes: str = ""
    guess: Guess | None = None
    truth: tuple[FactSpec, ...] = ()
    goal: Goal | None = None
    hint: str = ""
    show: Mapping[str, str] = field(default_factory=dict)
    paper: Paper | None = None
    answers: tuple[CheckAnswer, ...] = ()
    claims: tuple[Goal, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """Every text of the step, in reading order."""
        options = self.guess.options if self.guess else ()
        answers = [text for answer in self.answers for text in (answer.text, answer.say)]
        return tuple(text for text in (self.ask, *options, self.say, self.hint, *answers, self.notes) if text)


Step, Answer = (
    LessonStep,
    CheckAnswer,
)  # short names within lessons; recipes and predictions also have classes of these names


@dataclass(frozen=True)
class Lesson:
    """One lesson. ``runs`` are parts of recipes by alias, ``after`` the keys of lessons to do before it."""

    key: str
    title: str
    question: str
    minutes: int
    level: str
    after: tuple[str, ...]
    runs: Mapping[str, Mapping[str, Any]]
    facts: Mapping[str, FactSpec]
    steps: tuple[LessonStep, ...]
    path: Path

    def page_and_view(self, number: int) -> tuple[str, dict[str, str]]:
        """The page and the view of a step, counted from 1; if it names no page, those of the last step that does."""
        for step in reversed(self.steps[:number]):
            if step.page:
                return step.page, dict(step.view)
        return "", {}

    def is_on_desk(self, number: int) -> bool:
        """Whether a step, counted from 1, shows the sliders and meters of the page Mix in place of a chart."""
        return self.page_and_view(number)[0] == DESK_PAGE

    def chart(self, number: int) -> str:
        """The chart's key of a step, counted from 1; if it names none, that of an earlier step on the same page."""
        for step in reversed(self.steps[:number]):
            if step.chart or step.page:
                return step.chart
        return ""
