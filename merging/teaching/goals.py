"""Decides whether a task is done, from stored tables and the address (keys and values after "?" in the browser)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from merging.teaching.facts.fact_computation import compute_fact

if TYPE_CHECKING:
    from merging.teaching.lesson import Goal
    from merging.teaching.lesson_context import LessonContext

TOLERANCE = 1e-9


def is_met(goal: Goal, context: LessonContext, address: Mapping[str, str] | None = None) -> bool | None:
    """Whether a goal holds at an address (by default the context's); None if its fact is unknown on this machine.

    A key that the address lacks counts as empty.
    """
    if address is not None:
        context = context.with_view(address, context.preview, context.factors)
    if goal.fact is None:
        return _is_met_by_address(goal, context.address.get(goal.key, ""), context)
    fact = compute_fact(goal.fact, context)
    if fact.missing:
        return None
    if isinstance(goal.equal, str):
        return fact.name == goal.equal
    return _is_within(goal, fact.value)


def _is_met_by_address(goal: Goal, value: str, context: LessonContext) -> bool:
    if isinstance(goal.equal, str):
        expected = (
            context.resolve_view({goal.key: goal.equal}).get(goal.key) if goal.equal.startswith("@") else goal.equal
        )
        return expected is not None and value in (expected, *_list_accepted_prefixes(value, expected))
    try:
        return _is_within(goal, float(value))
    except ValueError:
        return False


def _list_accepted_prefixes(written: str, expected: str) -> tuple[str, ...]:
    """The written id, if it is a prefix of the expected id with at least 6 characters."""
    return (written,) if len(written) >= 6 and expected.startswith(written) else ()


def _is_within(goal: Goal, value: float) -> bool:
    if not math.isfinite(value):
        return False
    if isinstance(goal.equal, float):
        return abs(value - goal.equal) <= TOLERANCE
    above = goal.low is None or value >= goal.low - TOLERANCE
    return above and (goal.high is None or value <= goal.high + TOLERANCE)
