"""A class's answers at a step: as a picture in place of the visitor's guess, and the median guess in words."""

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
BINS = 10  # of a guessed number
REFRESH = 2.0  # seconds between two readings of the counts
NOT_PEOPLE = "Sessions, not people: a tab that is opened again counts again. Only counts are kept, for a day."


def is_class_shown(at: LessonPosition) -> bool:
    """Whether a step's answers are drawn in place of the guess: a class is under way, and the step is presented."""
    return view_state.is_presenting() and bool(polls.class_code()) and at.step.kind in {"predict", "check"}


def chart_key(at: LessonPosition) -> str:
    """The key of the chart that shows the class's answers to a step; empty where they are not shown."""
    if not is_class_shown(at):
        return ""
    return f"guess_{CURVE}" if at.step.guess is not None and at.step.guess.kind == CURVE else CHART


def draw_answers(at: LessonPosition, facts: Sequence[Fact], withheld: bool) -> None:
    """The class's answers so far; they are read again and again."""
    guarded_fragment(_draw, run_every=REFRESH)(at, facts, withheld)


def _draw(at: LessonPosition, facts: Sequence[Fact], withheld: bool) -> None:
    counts = polls.answer_counts(at.lesson.key, at.number)
    name = f"class_{at.lesson.key}_{at.number}"
    caption = NOT_PEOPLE
    guess = at.step.guess
    if guess is not None and guess.kind == CURVE:
        medians = [median(one) for one in counts]
        key, table, options = guess_widgets.guess_picture(guess, medians, facts, withheld)
        options["guessed"] = _guessers_in_words(counts)
        caption = f"The median guess of the class. {caption}"
    else:
        key, table, options = CHART, answer_rows(at, facts, counts), {"withheld": withheld, "code": polls.class_code()}
    draw_chart(key, table, name=name, headed=True, caption=caption, of=[], **options)


def _guessers_in_words(counts: Sequence[dict[float, int]]) -> str:
    """Whose guess is drawn: the class by its code, and how many sessions count."""
    sessions = sum(counts[0].values()) if counts else 0
    said = f"median of {plural(sessions, 'session')}" if sessions else "no session has answered yet"
    return f"Class {polls.class_code()}: {said}"


def answer_rows(at: LessonPosition, facts: Sequence[Fact], counts: Sequence[dict[float, int]]) -> pd.DataFrame:
    """A row for each answer: answer (in words), sessions, truth."""
    import pandas as pd

    first = counts[0] if counts else {}
    named = _bins(at, facts, first) if _is_numeric(at) else _names(at, facts, first)
    return pd.DataFrame(named, columns=["answer", "sessions", "truth"])


def median_in_words(at: LessonPosition) -> str:
    """The median guess of the class, in words; empty if there is no class, or the guess is no number."""
    if not _is_numeric(at) or not polls.class_code() or at.step.guess is None:
        return ""
    counts = polls.answer_counts(at.lesson.key, at.number)
    if not counts:
        return ""
    guessed = f"{median(counts[0]):g} {at.step.guess.unit}".strip()
    return f"{guessed} (the median of {plural(sum(counts[0].values()), 'session')})"


def _is_numeric(at: LessonPosition) -> bool:
    return at.step.guess is not None and at.step.guess.kind == "number"


def _bins(at: LessonPosition, facts: Sequence[Fact], counts: dict[float, int]) -> list[tuple[str, int, bool]]:
    """Guessed numbers by tenths of the axis; the last one holds its end."""
    guess = at.step.guess
    assert guess is not None  # called for guessed numbers
    low, high = float(guess.low), float(guess.high)
    width = (high - low) / BINS or 1.0

    def place(value: float) -> int:
        return min(max(int((value - low) / width), 0), BINS - 1)

    sessions = [sum(count for value, count in counts.items() if place(value) == k) for k in range(BINS)]
    truth = place(facts[0].displayed_value) if facts and not facts[0].missing else -1
    return [
        (f"{low + k * width:g} to {low + (k + 1) * width:g} {guess.unit}".strip(), sessions[k], k == truth)
        for k in range(BINS)
    ]


def _names(at: LessonPosition, facts: Sequence[Fact], counts: dict[float, int]) -> list[tuple[str, int, bool]]:
    """Answers by name: the options of a choice, what was put first in an order, marked cells, answers of a question."""
    guess = at.step.guess
    if guess is None:
        names = [clean_text(offered_lessons.fill_in(at.lesson, answer.text), 120) for answer in at.step.answers]
        right = {k for k, answer in enumerate(at.step.answers) if answer.right}
    else:
        names = guess_widgets.option_names(guess, facts)
        known = bool(facts) and not any(fact.missing for fact in facts)
        cells = {k for k, cell in enumerate(facts[0].cells) if cell.holds} if known and guess.kind == "cells" else set()
        right = cells or ({guess_widgets.right_option(guess, facts)} if known and guess.kind != "cells" else set())
    given = [(name, counts.get(float(k), 0), k in right) for k, name in enumerate(names)]
    if guess is not None and guess.kind == "cells":  # most of a map's cells are marked in no session
        given = sorted((one for one in given if one[1]), key=lambda one: -one[1])[: 2 * BINS]
    return [(name if names.count(name) == 1 else f"{name} ({k + 1})", n, t) for k, (name, n, t) in enumerate(given)]
