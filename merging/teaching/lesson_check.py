"""Checks a lesson on this machine: unknown names, unknown facts, and goals that hold before the learner acts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from merging.base.errors import MergingError
from merging.base.files.plain_yaml import read_plain_yaml
from merging.base.text import did_you_mean
from merging.recipes.papers.published_figures import SOURCES
from merging.teaching.fact_kinds import FACT_KINDS, lacks_interval
from merging.teaching.facts.fact_computation import compute_declared_facts, compute_fact
from merging.teaching.goals import is_met
from merging.teaching.lesson import CELLS, CHECK, DO, EXPLAIN, PREDICT, SAY, FactSpec, Goal
from merging.teaching.plain_text import PLACEHOLDER_NAME_PATTERN, find_placeholders

if TYPE_CHECKING:
    from merging.teaching.fact import Fact
    from merging.teaching.lesson import Lesson, LessonStep
    from merging.teaching.lesson_context import LessonContext

PLACES_FILE = Path(__file__).with_name("places.yaml")
MIN_STEPS, MAX_STEPS = 6, 12
MAX_WORDS = 120  # of an explanation
TYPED_NUMBER_PATTERN = re.compile(r"\d+(?:[.,]\d+)?\s?(?:%|points|percent)")


@dataclass(frozen=True)
class AppPlaces:
    """The names that a step may use: paths of pages, keys of the address, keys of charts."""

    pages: tuple[str, ...]
    keys: tuple[str, ...]
    charts: tuple[str, ...]


@lru_cache(maxsize=1)
def read_app_places() -> AppPlaces:
    """The pages, keys and charts of this version's app."""
    data = read_plain_yaml(PLACES_FILE.read_text(encoding="utf-8"), "list of places")
    return AppPlaces(*(tuple(str(name) for name in data[field]) for field in ("pages", "keys", "charts")))


def find_problems(lesson: Lesson, context: LessonContext) -> list[str]:
    """A sentence on every problem, in the order of the file; empty if the lesson can be taught on this machine."""
    problems = [*_check_shape(lesson), *_check_runs(lesson, context)]
    for number, step in enumerate(lesson.steps, 1):
        name = f"Step {number} ({step.kind})"
        problems += [f"{name}: {text}" for text in _check_step(step, number, lesson, context)]
    return [*problems, *_check_facts(lesson, context)]


def list_fact_specs(lesson: Lesson) -> dict[str, FactSpec]:
    """Every fact of a lesson, by its name or by the step that uses it and its number there."""
    specs = dict(lesson.facts)
    for number, step in enumerate(lesson.steps, 1):
        goals = [goal for goal in (step.goal, *step.claims) if goal]
        used = [*step.truth, *(step.paper.ours if step.paper else ())]
        used += [goal.fact for goal in goals if goal.fact and not FACT_KINDS[goal.fact.fact].reads_view]
        specs |= {f"step {number}, {i}": spec for i, spec in enumerate(used, 1)}
    return specs


def _check_shape(lesson: Lesson) -> Iterator[str]:
    if not MIN_STEPS <= len(lesson.steps) <= MAX_STEPS:
        yield f"A lesson has {MIN_STEPS} to {MAX_STEPS} steps; this one has {len(lesson.steps)}."
    kinds = [step.kind for step in lesson.steps]
    for kind in (PREDICT, DO, EXPLAIN, CHECK):
        if kind not in kinds:
            yield f"No step is of the kind {kind}: predict, do, explain and check belong together."


def _check_runs(lesson: Lesson, context: LessonContext) -> Iterator[str]:
    for alias in lesson.runs:
        try:
            if not context.find_id(alias):
                yield f"The run {alias} is not stored. Run its recipe, or check with --compute."
        except MergingError as error:
            yield f"The run {alias}: {error}"


def _check_step(step: LessonStep, number: int, lesson: Lesson, context: LessonContext) -> Iterator[str]:
    places = read_app_places()
    keys = [*step.view, *step.controls, *step.show]
    keys += [goal.key for goal in (step.goal, *step.claims) if goal and goal.key]
    for name, choices, kind in (
        *((page, places.pages, "page") for page in [step.page] if page),
        *((chart, places.charts, "chart") for chart in [step.chart] if chart),
        *((key, places.keys, "key of the address") for key in keys),
    ):
        if name not in choices:
            yield f"there is no {kind} {name!r}.{did_you_mean(name, choices)}"
    if step.paper and step.paper.source not in (sources := [name.casefold() for name in SOURCES]):
        yield f"there is no paper {step.paper.source!r}.{did_you_mean(step.paper.source, sources)}"
    if step.kind == EXPLAIN and len(step.say.split()) > MAX_WORDS:
        yield f"an explanation has at most {MAX_WORDS} words; this one has {len(step.say.split())}."
    if step.kind in (SAY, EXPLAIN) and (match := TYPED_NUMBER_PATTERN.search(step.say)):
        yield f"a number is typed into the text ({match.group()}). Declare a fact and write its name in braces."
    if step.guess and step.guess.kind == CELLS and not all(compute_fact(fact, context).cells for fact in step.truth):
        yield "its truth has no cells to mark. Name a fact with cells, such as kept of cells."
    yield from _check_goal(step, number, lesson, context)
    for claim in step.claims:
        if is_met(claim, context) is not True:
            yield f"its text claims that {describe_goal(claim)}, which is not true here."


def _check_goal(step: LessonStep, number: int, lesson: Lesson, context: LessonContext) -> Iterator[str]:
    """The problems of a goal that holds before the learner acts, or does not hold after "Show me"."""
    if step.goal is None:
        return
    opened_view = context.resolve_view(lesson.page_and_view(number)[1])
    if is_met(step.goal, context, opened_view):
        yield f"its goal ({describe_goal(step.goal)}) holds as soon as the step opens. Open it with another view."
    if not step.show:
        yield "it has no show, the values of the address that fulfil its goal."
    elif is_met(step.goal, context, opened_view | context.resolve_view(step.show)) is False:
        yield f"its goal ({describe_goal(step.goal)}) does not hold with the values of show."


def describe_goal(goal: Goal) -> str:
    """A goal in a few words."""
    arguments = ", ".join(f"{key} {value}" for key, value in goal.fact.arguments.items()) if goal.fact else ""
    subject = f"{goal.fact.fact}{f' ({arguments})' if arguments else ''}" if goal.fact else goal.key
    if goal.equal is not None:
        return f"{subject} is {goal.equal}"
    if goal.high is None:
        return f"{subject} is at least {goal.low:g}"
    return f"{subject} is between {goal.low:g} and {goal.high:g}"


def _check_facts(lesson: Lesson, context: LessonContext) -> Iterator[str]:
    for name, spec in list_fact_specs(lesson).items():
        fact = compute_fact(spec, context)
        if fact.missing:
            yield f"The fact of {name} ({spec.fact}) is unknown here: {fact.missing}"
        elif not fact.name and not math.isfinite(fact.value):
            yield f"The fact of {name} ({spec.fact}) is undefined."
        elif lacks_interval(spec, fact):
            yield f"The fact of {name} ({spec.fact}) has no interval: {fact.source or spec.fact}."
    for name in sorted(lesson.facts.keys() - set(_list_used_facts(lesson))):
        yield f"The fact {name} is declared and never used."


def _list_used_facts(lesson: Lesson) -> Iterator[str]:
    """The names of the declared facts that texts, truths, papers, goals and claims use."""
    used: list[FactSpec] = []
    for step in lesson.steps:
        for text in step.texts:
            yield from (
                found.group(1)
                for each in find_placeholders(text)
                if (found := PLACEHOLDER_NAME_PATTERN.fullmatch(each))
            )
        used += [*step.truth, *(step.paper.ours if step.paper else ())]
        used += [goal.fact for goal in (step.goal, *step.claims) if goal and goal.fact]
    yield from (name for name, spec in lesson.facts.items() if spec in used)


def fill_texts(lesson: Lesson, context: LessonContext) -> list[tuple[str, str]]:
    """Every text with its facts filled in, as (number and kind of the step, text)."""
    from merging.teaching.fill import NO_BREAK_SPACE, fill_facts

    facts: Mapping[str, Fact] = compute_declared_facts(context)
    steps: Iterable[tuple[int, LessonStep]] = enumerate(lesson.steps, 1)
    return [
        (f"{number} {step.kind}", fill_facts(text, facts).replace(NO_BREAK_SPACE, " "))
        for number, step in steps
        for text in step.texts
    ]
