"""Facts as text, texts with facts in them, and progress as text in the address."""

from __future__ import annotations

import math

import pytest

from merging.base.errors import LessonError
from merging.teaching.fact import Fact
from merging.teaching.fill import fill_facts
from merging.teaching.lesson_progress import (
    MAX_CHARACTERS,
    format_answers,
    format_finished_steps,
    parse_answers,
    parse_finished_steps,
)

SHARE = Fact(0.69404, "%", 0.673, 0.716, 1680, "reporting")


@pytest.mark.parametrize(
    ("fact", "short", "long"),
    [
        (SHARE, "69.4 %", "69.4 % (67.3 to 71.6, n = 1,680, reporting half)"),
        (Fact(-0.02, "points", -0.03, -0.0001, 5), "−2.0 points", "−2.0 points (−3.0 to 0.0, n = 5)"),
        (Fact(0.159, "points", seed=0), "+15.9 points", "+15.9 points (seed 0)"),
        (Fact(12.345, n=3, counted_unit="tensors", digits=2), "12.35", "12.35 (n = 3 tensors)"),
        (Fact(0.5, name="Kana", n=2), "Kana", "Kana (n = 2)"),
        (Fact(math.nan, "%"), "undefined", "undefined"),
        (Fact(0.5, "%", n=7, missing="Measure it."), "not measured here", "not measured here"),
    ],
)
def test_a_fact_writes_itself(fact: Fact, short: str, long: str) -> None:
    assert (fact.text, fact.long_text) == (short, long)


def test_facts_are_filled_in_outside_formulas_only() -> None:
    facts = {"k": SHARE, "name": Fact(name="a*b_<i>")}
    assert (
        fill_facts(r"$\tau_{k}$ {k}, {k:long}", facts)
        == "$\\tau_{k}$ 69.4\u00a0%, 69.4\u00a0% (67.3 to 71.6, n = 1,680, reporting half)"
    )
    assert fill_facts("{name}", facts) == r"a\*b\_\<i\>"
    for wrong in ("{kk}", "{k:short}", "{}"):
        with pytest.raises(LessonError, match="not declared"):
            fill_facts(wrong, facts)


def test_progress_is_read_back() -> None:
    assert (
        parse_finished_steps(format_finished_steps([1, 3, 12])) == {1, 3, 12}
        and format_finished_steps([]) == ""
        and format_finished_steps([5]) == "g"
    )
    assert parse_finished_steps("zz") == parse_finished_steps("g" * 14) == frozenset() and parse_finished_steps(
        "v", 3
    ) == {1, 2, 3}
    values = {2: (69.4, 0.0), 4: (-1.25,), 12: (3.0,)}
    assert parse_answers(format_answers(values)) == values
    assert parse_answers("2_60~x_1~4_~7_nan~100_1~٣_1") == {2: (60.0,)}


def test_what_was_said_fits_the_address() -> None:
    many = dict.fromkeys(range(1, 13), (12.345, 99.875, -3.5, 1.0, 2.0))
    text = format_answers(many)
    assert len(text) <= MAX_CHARACTERS and max(parse_answers(text)) == 12
    assert parse_answers(text)[12] == many[12]
    assert format_answers({1: (math.inf,), 2: ()}) == ""
