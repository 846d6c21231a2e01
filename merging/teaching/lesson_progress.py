"""How far one has got in a lesson, as short texts for the address: ``parse_finished_steps`` and ``parse_answers``.

``parse_finished_steps`` are the finished steps, bit n - 1 for step n, written in base 32. ``parse_answers`` are guesses
and answers by step, as '2_60~4_1': parts joined by "~", a step's number, "_", and values joined by "_", all of them
numbers. Free texts are not in the address.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from merging.teaching import lesson as kinds

if TYPE_CHECKING:
    from merging.teaching.lesson import LessonStep

MOST_CHARACTERS = 120  # of said
MOST_STEPS = 64
DIGITS = "0123456789abcdefghijklmnopqrstuv"
NUMBER = re.compile(r"-?(\d{1,9})(\.\d{1,6})?")


def format_finished_steps(steps: Collection[int]) -> str:
    """The finished steps, counted from 1, as text; empty if there are none."""
    bits = sum(1 << (step - 1) for step in set(steps) if 1 <= step <= MOST_STEPS)
    digits = ""
    while bits:
        bits, rest = divmod(bits, 32)
        digits = DIGITS[rest] + digits
    return digits


def parse_finished_steps(text: str, count: int = MOST_STEPS) -> frozenset[int]:
    """The finished steps in a text, at most ``count``; none of a text that is no such number."""
    if not text or len(text) > 13 or any(digit not in DIGITS for digit in text):
        return frozenset()
    bits = int(text, 32)
    return frozenset(step for step in range(1, min(count, MOST_STEPS) + 1) if bits >> (step - 1) & 1)


def format_answers(values: Mapping[int, Sequence[float]], most: int = MOST_CHARACTERS) -> str:
    """Guesses and answers by step as text; the earliest steps are left out where it would be longer than ``most``."""
    parts = [
        "_".join([str(step), *map(_short, numbers)])
        for step, numbers in sorted(values.items())
        if len(numbers) and 1 <= step <= MOST_STEPS and all(map(math.isfinite, numbers))
    ]
    while len("~".join(parts)) > most:
        parts.pop(0)
    return "~".join(parts)


def parse_answers(text: str, most: int = MOST_CHARACTERS) -> dict[int, tuple[float, ...]]:
    """Guesses and answers by step in the first ``most`` characters; parts that make no sense are left out."""
    values: dict[int, tuple[float, ...]] = {}
    for part in text[:most].split("~"):
        step, *numbers = part.split("_")
        whole = step.isascii() and step.isdigit() and len(step) <= 2 and 1 <= int(step) <= MOST_STEPS
        if whole and numbers and all(number.isascii() and NUMBER.fullmatch(number) for number in numbers):
            values[int(step)] = tuple(float(number) for number in numbers)
    return values


def is_possible_answer(step: LessonStep, values: Sequence[float]) -> bool:
    """Whether these numbers can be a guess or an answer of the step: links and sheets may say anything.

    How many cells a map has is not known here.
    """
    places = [int(value) for value in values if value >= 0 and float(value).is_integer()]
    if step.kind == kinds.CHECK:
        return len(values) == 1 == len(places) and places[0] < len(step.answers)
    guess = step.guess
    if guess is None:
        return False
    if guess.kind in (kinds.NUMBER, kinds.CURVE):
        return len(values) == (1 if guess.kind == kinds.NUMBER else len(guess.at))
    whole = len(values) == len(places) == len(set(places)) > 0
    if guess.kind == kinds.CELLS:
        return whole and len(places) <= guess.most
    count = {kinds.CHOICE: 1, kinds.ORDER: len(guess.options)}[guess.kind]
    return whole and len(places) == count and max(places) < len(guess.options)


def _short(value: float) -> str:
    text = f"{value:.3f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text
