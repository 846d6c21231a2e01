"""A learner's progress in a lesson, as short texts for the address.

Finished steps are the bits of a number in base 32, bit n - 1 for step n. Guesses and answers by step are written as
'2_60~4_1': parts joined by "~", each a step's number and the values, all numbers, joined by "_". Free texts are not in
the address.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from merging.teaching import lesson as kinds

if TYPE_CHECKING:
    from merging.teaching.lesson import LessonStep

MAX_CHARACTERS = 120  # in a text of answers
MAX_STEPS = 64  # bits of the number of finished steps
DIGITS = "0123456789abcdefghijklmnopqrstuv"
NUMBER = re.compile(r"-?(\d{1,9})(\.\d{1,6})?")


def format_finished_steps(steps: Collection[int]) -> str:
    """The finished steps, counted from 1, as a text; empty if there are none."""
    bits = sum(1 << (step - 1) for step in set(steps) if 1 <= step <= MAX_STEPS)
    digits = ""
    while bits:
        bits, digit = divmod(bits, 32)
        digits = DIGITS[digit] + digits
    return digits


def parse_finished_steps(text: str, count: int = MAX_STEPS) -> frozenset[int]:
    """The finished steps up to number ``count`` in a text; none if the text is not such a number."""
    if not text or len(text) > 13 or any(digit not in DIGITS for digit in text):
        return frozenset()
    bits = int(text, 32)
    return frozenset(step for step in range(1, min(count, MAX_STEPS) + 1) if bits >> (step - 1) & 1)


def format_answers(values: Mapping[int, Sequence[float]], max_characters: int = MAX_CHARACTERS) -> str:
    """Guesses and answers by step as a text of at most ``max_characters``; the earliest steps are dropped if needed."""
    parts = [
        "_".join([str(step), *map(_format_number, numbers)])
        for step, numbers in sorted(values.items())
        if len(numbers) and 1 <= step <= MAX_STEPS and all(map(math.isfinite, numbers))
    ]
    while len("~".join(parts)) > max_characters:
        parts.pop(0)
    return "~".join(parts)


def parse_answers(text: str, max_characters: int = MAX_CHARACTERS) -> dict[int, tuple[float, ...]]:
    """Guesses and answers by step in the first ``max_characters`` of a text, without malformed parts."""
    values: dict[int, tuple[float, ...]] = {}
    for part in text[:max_characters].split("~"):
        step, *numbers = part.split("_")
        is_step = step.isascii() and step.isdigit() and len(step) <= 2 and 1 <= int(step) <= MAX_STEPS
        if is_step and numbers and all(number.isascii() and NUMBER.fullmatch(number) for number in numbers):
            values[int(step)] = tuple(float(number) for number in numbers)
    return values


def is_possible_answer(step: LessonStep, values: Sequence[float]) -> bool:
    """Whether these numbers can be a guess or an answer of the step; links and sheets may contain any numbers.

    The number of cells of a map is not checked.
    """
    indices = [int(value) for value in values if value >= 0 and float(value).is_integer()]
    if step.kind == kinds.CHECK:
        return len(values) == 1 == len(indices) and indices[0] < len(step.answers)
    guess = step.guess
    if guess is None:
        return False
    if guess.kind in (kinds.NUMBER, kinds.CURVE):
        return len(values) == (1 if guess.kind == kinds.NUMBER else len(guess.at))
    are_distinct_indices = len(values) == len(indices) == len(set(indices)) > 0
    if guess.kind == kinds.CELLS:
        return are_distinct_indices and len(indices) <= guess.most
    count = {kinds.CHOICE: 1, kinds.ORDER: len(guess.options)}[guess.kind]
    return are_distinct_indices and len(indices) == count and max(indices) < len(guess.options)


def _format_number(value: float) -> str:
    text = f"{value:.3f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text
