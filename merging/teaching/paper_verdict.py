"""A computed verdict on whether this benchmark reproduces a paper's numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from merging.images.benchmarks.paired_scores import find_interval
from merging.teaching.fact_kinds import lacks_interval
from merging.teaching.facts.fact_computation import compute_fact

if TYPE_CHECKING:
    from merging.teaching.fact import Fact
    from merging.teaching.lesson import Paper
    from merging.teaching.lesson_context import LessonContext

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
    if theirs == 0 or abs(ours) <= _change_uncertainty(facts, ours):
        return NOT_REPRODUCED
    return SAME if (theirs > 0) == (ours > 0) else OTHER


def _change_uncertainty(facts: list[Fact], change: float) -> float:
    """The uncertainty of a change, from its paired draws if both ends have draws of the same images.

    On different images, the half intervals of both ends toward each other are combined as independent errors. It is 0
    if no end has an interval.
    """
    ends = [facts[0], facts[-1]] if len(facts) > 1 else [facts[0]]
    first, last = ends[0], ends[-1]
    if (
        len(ends) > 1
        and first.draws is not None
        and last.draws is not None
        and (first.half, first.seed) == (last.half, last.seed)
    ):
        low, high = find_interval(last.draws - first.draws)
        return float(change - low if change > 0 else high - change)
    parts = []
    for i, fact in enumerate(ends):
        upward = (change > 0) == (i == 0 and len(ends) > 1)  # the end from which the change starts
        if fact.has_interval:
            parts.append(fact.high - fact.value if upward else fact.value - fact.low)
    return math.hypot(*parts) if parts else 0.0
