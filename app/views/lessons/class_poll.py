"""A class's answers at a step: as a picture instead of the visitor's guess, and the median guess in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from app.reading import offered_lessons, polls
from app.session import view_state
from app.session.click_errors import guarded_fragment
from app.views.lessons import guess_widgets
from app.views.lessons.learner import LessonPosition
from app.widgets.chart_view import draw_chart
from merging.teaching.fact import Fact
from merging.teaching.poll_counts import median
from viz.figure_text import clean_text, plural

if TYPE_CHECKING:
    import pandas as pd

CHART, CURVE = "class_answers", "curve"
BINS = 10  # in the chart of a guessed number
REFRESH = 2.0  # seconds between two readings of the counts
NOT_PEOPLE = (
    "Counts are of sessions, not people: a tab that is opened again counts again. Only counts are stored, for a day."
)


def is_class_shown(position: LessonPosition) -> bool:
    """Whether the class's answers replace the visitor's guess: there is a class, and the step is presented."""
    return view_state.is_presenting() and bool(polls.class_code()) and position.step.kind in {"predict", "check"}


def chart_key(position: LessonPosition) -> str:
    """The key of the chart of the class's answers to a step; empty if they are not shown."""
    if not is_class_shown(position):
        return ""
    return f"guess_{CURVE}" if position.step.guess is not None and position.step.guess.kind == CURVE else CHART


def draw_answers(position: LessonPosition, facts: Sequence[Fact], withheld: bool) -> None:
    """Draw the class's answers so far, and again at intervals."""
    guarded_fragment(_draw, run_every=REFRESH)(position, facts, withheld)


def _draw(position: LessonPosition, facts: Sequence[Fact], withheld: bool) -> None:
    counts = polls.answer_counts(position.lesson.key, position.number)
    name = f"class_{position.lesson.key}_{position.number}"
    caption = NOT_PEOPLE
    guess = position.step.guess
    if guess is not None and guess.kind == CURVE:
        medians = [median(votes) for votes in counts]
        key, table, options = guess_widgets.guess_picture(guess, medians, facts, withheld)
        options["guessed"] = _guessers_in_words(counts)
        caption = f"The median guess of the class. {caption}"
    else:
        key, table, options = (
            CHART,
            answer_rows(position, facts, counts),
            {"withheld": withheld, "code": polls.class_code()},
        )
    draw_chart(key, table, name=name, headed=True, caption=caption, of=[], **options)


def _guessers_in_words(counts: Sequence[dict[float, int]]) -> str:
    """The label of the class's guess: the class's code and the number of sessions."""
    sessions = sum(counts[0].values()) if counts else 0
    summary = f"median of {plural(sessions, 'session')}" if sessions else "no session has answered yet"
    return f"Class {polls.class_code()}: {summary}"


def answer_rows(position: LessonPosition, facts: Sequence[Fact], counts: Sequence[dict[float, int]]) -> pd.DataFrame:
    """One row for each answer: ``answer`` in words, ``sessions`` and ``truth``, whether it is right."""
    import pandas as pd

    first = counts[0] if counts else {}
    named = _bins(position, facts, first) if _is_numeric(position) else _names(position, facts, first)
    return pd.DataFrame(named, columns=["answer", "sessions", "truth"])


def median_in_words(position: LessonPosition) -> str:
    """The median guess of the class in words; empty without a class, or if the guess is not a number."""
    if not _is_numeric(position) or not polls.class_code() or position.step.guess is None:
        return ""
    counts = polls.answer_counts(position.lesson.key, position.number)
    if not counts:
        return ""
    guessed = f"{median(counts[0]):g} {position.step.guess.unit}".strip()
    return f"{guessed} (the median of {plural(sum(counts[0].values()), 'session')})"


def _is_numeric(position: LessonPosition) -> bool:
    return position.step.guess is not None and position.step.guess.kind == "number"


def _bins(position: LessonPosition, facts: Sequence[Fact], counts: dict[float, int]) -> list[tuple[str, int, bool]]:
    """The counts of guessed numbers in tenths of the axis; the last bin includes the upper end."""
    guess = position.step.guess
    assert guess is not None  # called for guessed numbers
    low, high = float(guess.low), float(guess.high)
    width = (high - low) / BINS or 1.0

    def bin_number(value: float) -> int:
        return min(max(int((value - low) / width), 0), BINS - 1)

    sessions = [sum(count for value, count in counts.items() if bin_number(value) == k) for k in range(BINS)]
    truth = bin_number(facts[0].displayed_value) if facts and not facts[0].missing else -1
    return [
        (f"{low + k * width:g} to {low + (k + 1) * width:g} {guess.unit}".strip(), sessions[k], k == truth)
        for k in range(BINS)
    ]


def _names(position: LessonPosition, facts: Sequence[Fact], counts: dict[float, int]) -> list[tuple[str, int, bool]]:
    """The counts by name: options of a choice, first options of an order, marked cells, or answers to a question."""
    guess = position.step.guess
    if guess is None:
        names = [
            clean_text(offered_lessons.fill_in(position.lesson, answer.text), 120) for answer in position.step.answers
        ]
        right = {k for k, answer in enumerate(position.step.answers) if answer.right}
    else:
        names = guess_widgets.option_names(guess, facts)
        known = bool(facts) and not any(fact.missing for fact in facts)
        cells = {k for k, cell in enumerate(facts[0].cells) if cell.holds} if known and guess.kind == "cells" else set()
        right = cells or ({guess_widgets.right_option(guess, facts)} if known and guess.kind != "cells" else set())
    answers = [(name, counts.get(float(k), 0), k in right) for k, name in enumerate(names)]
    if guess is not None and guess.kind == "cells":  # no session marks most of a map's cells
        answers = sorted((answer for answer in answers if answer[1]), key=lambda answer: -answer[1])[: 2 * BINS]
    return [(name if names.count(name) == 1 else f"{name} ({k + 1})", n, t) for k, (name, n, t) in enumerate(answers)]
