"""A computed verdict on whether this benchmark reproduces a paper's numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from merging.images.benchmarks.paired_scores import find_interval, find_smallest_visible
from merging.teaching.fact import PERCENT, POINTS, Fact
from merging.teaching.fact_kinds import lacks_interval
from merging.teaching.facts.fact_computation import compute_fact

if TYPE_CHECKING:
    from merging.teaching.lesson import Paper
    from merging.teaching.lesson_context import LessonContext

CHANGE = "Difference, image by image"
SAME, NOT_REPRODUCED, OTHER = "same direction", "not reproduced here", "other direction"


def judge_paper(paper: Paper, context: LessonContext) -> str:
    """Whether our facts change in the same direction as the paper's numbers, from the first to the last.

    A single number is compared with zero. The verdict is "not reproduced here" if the paper's numbers do not differ, if
    a fact or its interval is not known on this machine, or if our change is within its uncertainty.
    """
    facts = [compute_fact(spec, context) for spec in paper.ours]
    reported = list(paper.says.values())
    if any(fact.missing or not math.isfinite(fact.value) for fact in facts):
        return NOT_REPRODUCED
    if any(map(lacks_interval, paper.ours, facts)):
        return NOT_REPRODUCED
    theirs = reported[-1] - reported[0] if len(reported) > 1 else reported[0]
    ours = facts[-1].value - facts[0].value if len(facts) > 1 else facts[0].value
    if theirs == 0 or not abs(ours) > _change_uncertainty(facts, ours):
        return NOT_REPRODUCED
    return SAME if (theirs > 0) == (ours > 0) else OTHER


def find_paired_change(facts: Sequence[Fact]) -> Fact | None:
    """The last fact minus the first with its paired interval; None unless both have draws of the same images."""
    first, last = facts[0], facts[-1]
    if len(facts) < 2 or first.draws is None or last.draws is None or not _have_same_images(first, last):
        return None
    low, high = find_interval(last.draws - first.draws)
    unit = POINTS if last.unit == PERCENT else last.unit
    return Fact(
        last.value - first.value, unit, float(low), float(high), last.n, last.half, last.seed, digits=last.digits
    )


def describe_change(paper: Paper, facts: Sequence[Fact]) -> list[tuple[str, str, str]]:
    """A row (name, the paper's difference, ours with its paired interval); none unless ours is paired."""
    change, reported = find_paired_change(facts), list(paper.says.values())
    if change is None:
        return []
    unit = POINTS if paper.unit == PERCENT else paper.unit
    return [(CHANGE, f"{reported[-1] - reported[0]:+g} {unit}".strip().replace("-", "−"), change.long_text)]


def describe_power(change: Fact) -> str:
    """The smallest true change that its interval would show, as a sentence."""
    smallest = change.scale * find_smallest_visible(change.low, change.high)
    unit = f" {change.unit}" if change.unit else ""
    return (
        f"A true difference of {smallest:.{change.digits}f}{unit} or more would be shown in 80% of samples like this."
    )


def _have_same_images(first: Fact, last: Fact) -> bool:
    return bool(first.half) and (first.half, first.seed) == (last.half, last.seed)


def _change_uncertainty(facts: list[Fact], change: float) -> float:
    """The uncertainty of a change; 0 if no end has an interval.

    On the same images it is that of the paired draws, and unknown (NaN) if an end lacks them. On different images, the
    half intervals of both ends toward each other are combined as independent errors.
    """
    if paired := find_paired_change(facts):
        return change - paired.low if change > 0 else paired.high - change
    ends = [facts[0], facts[-1]] if len(facts) > 1 else [facts[0]]
    if len(ends) > 1 and _have_same_images(*ends) and any(fact.has_interval for fact in ends):
        return math.nan
    parts = []
    for i, fact in enumerate(ends):
        upward = (change > 0) == (i == 0 and len(ends) > 1)  # the end from which the change starts
        if fact.has_interval:
            parts.append(fact.high - fact.value if upward else fact.value - fact.low)
    return math.hypot(*parts) if parts else 0.0
