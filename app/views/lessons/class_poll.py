"""A class's answers at a step: as a picture instead of the visitor's guess, and the median guess in words.

A fact is a measured number of a lesson. The truth is ``withheld`` until it is revealed.
"""

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

AnswerRows = list[tuple[str, int, bool]]  # an answer in words, its sessions, and whether it is right
CHART_KEY, CURVE_KIND = "class_answers", "curve"
BIN_COUNT = 10  # in the chart of a guessed number
REFRESH_SECONDS = 2.0  # between two readings of the counts
COUNTS_NOTE = (
    "Counts are of sessions, not people: a tab that is opened again counts again. Only counts are stored, for a day."
)


def is_class_shown(position: LessonPosition) -> bool:
    """Whether the class's answers replace the visitor's guess: there is a class, and the step is presented."""
    return view_state.is_presenting() and bool(polls.class_code()) and position.step.kind in {"predict", "check"}


def choose_chart_key(position: LessonPosition) -> str:
    """The key of the chart of the class's answers to a step; empty if they are not shown."""
    if not is_class_shown(position):
        return ""
    guess = position.step.guess
    return f"guess_{CURVE_KIND}" if guess is not None and guess.kind == CURVE_KIND else CHART_KEY


def draw_answers(position: LessonPosition, facts: Sequence[Fact], withheld: bool) -> None:
    """Draw the class's answers so far, every two seconds again."""
    guarded_fragment(_draw_answers_now, run_every=REFRESH_SECONDS)(position, facts, withheld)


def _draw_answers_now(position: LessonPosition, facts: Sequence[Fact], withheld: bool) -> None:
    counts = polls.answer_counts(position.lesson.key, position.number)
    name = f"class_{position.lesson.key}_{position.number}"
    caption = COUNTS_NOTE
    guess = position.step.guess
    if guess is not None and guess.kind == CURVE_KIND:
        medians = [median(votes) for votes in counts]
        key, table, options = guess_widgets.make_guess_chart(guess, medians, facts, withheld)
        options["guessed"] = _guessers_in_words(counts)
        caption = f"The median guess of the class. {caption}"
    else:
        key = CHART_KEY
        table = list_answer_rows(position, facts, counts)
        options = {"withheld": withheld, "code": polls.class_code()}
    draw_chart(key, table, name=name, question_drawn=True, caption=caption, sources=[], **options)


def _guessers_in_words(counts: Sequence[dict[float, int]]) -> str:
    """The label of the class's guess: the class's code and the number of sessions.

    ``counts`` has {guessed value: sessions} for each point of the curve; every session guesses all points.
    """
    sessions = sum(counts[0].values()) if counts else 0
    summary = f"median of {plural(sessions, 'session')}" if sessions else "no session has answered yet"
    return f"Class {polls.class_code()}: {summary}"


def list_answer_rows(
    position: LessonPosition, facts: Sequence[Fact], counts: Sequence[dict[float, int]]
) -> pd.DataFrame:
    """One row for each answer: ``answer`` in words, the number of ``sessions``, and ``truth``: whether it is right.

    ``counts`` has {number: sessions} for each position in an answer; the rows count the first position.
    """
    import pandas as pd

    count = _count_by_bin if _is_numeric(position) else _count_by_name
    rows = count(position, facts, counts[0] if counts else {})
    return pd.DataFrame(rows, columns=["answer", "sessions", "truth"])


def median_in_words(position: LessonPosition) -> str:
    """The median guess of the class in words; empty without a class, or if the guess is not a number."""
    if not _is_numeric(position) or not polls.class_code() or position.step.guess is None:
        return ""
    counts = polls.answer_counts(position.lesson.key, position.number)
    if not counts:
        return ""
    median_guess = f"{median(counts[0]):g} {position.step.guess.unit}".strip()
    return f"{median_guess} (the median of {plural(sum(counts[0].values()), 'session')})"


def _is_numeric(position: LessonPosition) -> bool:
    return position.step.guess is not None and position.step.guess.kind == "number"


def _count_by_bin(position: LessonPosition, facts: Sequence[Fact], counts: dict[float, int]) -> AnswerRows:
    """The counts of guessed numbers in tenths of the axis; the last bin includes the upper end."""
    guess = position.step.guess
    assert guess is not None  # called for guessed numbers
    low, high = float(guess.low), float(guess.high)
    width = (high - low) / BIN_COUNT or 1.0

    def bin_number(value: float) -> int:
        return min(max(int((value - low) / width), 0), BIN_COUNT - 1)

    sessions = [
        sum(count for value, count in counts.items() if bin_number(value) == index) for index in range(BIN_COUNT)
    ]
    truth = bin_number(facts[0].displayed_value) if facts and not facts[0].missing else -1  # no bin
    return [
        (
            f"{low + index * width:g} to {low + (index + 1) * width:g} {guess.unit}".strip(),
            sessions[index],
            index == truth,
        )
        for index in range(BIN_COUNT)
    ]


def _count_by_name(position: LessonPosition, facts: Sequence[Fact], counts: dict[float, int]) -> AnswerRows:
    """The counts by name: options of a choice, first options of an order, marked cells, or answers to a question."""
    guess = position.step.guess
    if guess is None:
        names = [
            clean_text(offered_lessons.fill_in_facts(position.lesson, answer.text), 120)
            for answer in position.step.answers
        ]
        right_indices = {index for index, answer in enumerate(position.step.answers) if answer.right}
    else:
        names = guess_widgets.list_option_names(guess, facts)
        is_known = bool(facts) and not any(fact.missing for fact in facts)
        true_cells = (
            {index for index, cell in enumerate(facts[0].cells) if cell.holds}
            if is_known and guess.kind == "cells"
            else set()
        )
        right_indices = true_cells or (
            {guess_widgets.find_right_option(guess, facts)} if is_known and guess.kind != "cells" else set()
        )
    answers = [(name, counts.get(float(index), 0), index in right_indices) for index, name in enumerate(names)]
    if guess is not None and guess.kind == "cells":  # no session marks most of a map's cells
        answers = sorted((answer for answer in answers if answer[1]), key=lambda answer: -answer[1])[: 2 * BIN_COUNT]
    return [
        (name if names.count(name) == 1 else f"{name} ({index + 1})", sessions, is_right)
        for index, (name, sessions, is_right) in enumerate(answers)
    ]
