"""Computes facts: finds each fact's function, and reports missing measurements in the fact."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from merging.base.errors import MergingError
from merging.teaching.fact import Fact
from merging.teaching.fact_kinds import FACT_KINDS
from merging.teaching.lesson import FactSpec
from merging.teaching.lesson_context import NotMeasured

if TYPE_CHECKING:
    from merging.teaching.lesson_context import LessonContext

Compute = Callable[["LessonContext", Mapping[str, Any]], Fact]


def compute_fact(spec: FactSpec, context: LessonContext) -> Fact:
    """The fact; if its table is not stored or this benchmark lacks its arguments, ``missing`` explains why."""
    key = (spec.fact, repr(sorted(spec.arguments.items())))
    if FACT_KINDS[spec.fact].reads_view:
        return _compute_or_explain(spec, context)
    return context.compute_once(key, lambda: _compute_or_explain(spec, context))


def compute_declared_facts(context: LessonContext) -> dict[str, Fact]:
    """Every fact that the lesson declares, by name, to fill its texts."""
    return {name: compute_fact(spec, context) for name, spec in context.lesson.facts.items()}


def _compute_or_explain(spec: FactSpec, context: LessonContext) -> Fact:
    try:
        return _find_function(spec.fact)(context, spec.arguments)
    except NotMeasured as error:
        return Fact(missing=str(error), measure=error.measure, run=error.run)
    except MergingError as error:
        return Fact(missing=str(error))


@lru_cache(maxsize=len(FACT_KINDS))
def _find_function(fact: str) -> Compute:
    module, _, name = FACT_KINDS[fact].compute.partition(":")
    function: Compute = getattr(importlib.import_module(f"merging.teaching.facts.{module}"), name)
    return function
