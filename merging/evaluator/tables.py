"""The points of a sweep that the user's program measured, as plain rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from merging.evaluator.given_points import GivenPoint
from merging.runs.given.summary import summarized
from merging.sweeps.sweep import NamedPoint
from merging.sweeps.tables import in_order

MEAN, INSIDE, OUTSIDE, H_SCORE = "mean", "in domain", "out of domain", "H-score"


def given_rows(planned: Sequence[NamedPoint], found: Mapping[str, GivenPoint]) -> list[dict[str, Any]]:
    """A row for each score of each stored point; points in the order of the axes, scores as the program printed them.

    ``found`` is by run. ``line`` counts recipes; x and y are the varied values; ``low`` and ``high`` are NaN where a
    score has no interval.
    """
    rows = []
    for one in in_order(planned):
        if (point := found.get(one.run_id)) is None:
            continue
        inside = {name for name, _ in one.place.recipe.experts}
        for score in point.scores:
            low, high = score.interval
            rows.append({
                **_place(one), "task": score.task, "split": score.split, "metric": score.metric, "value": score.value,
                "n": math.nan if score.n is None else score.n, "low": low, "high": high, "better": score.better,
                "proportion": score.proportion, "in_domain": score.task in inside, "source": point.source,
            })  # fmt: skip
    return rows


def given_means(planned: Sequence[NamedPoint], found: Mapping[str, GivenPoint]) -> list[dict[str, Any]]:
    """A row for each mean over the tasks of a point, of the one proportion that most of its tasks have.

    In and out of domain are told where a task is called like an expert of the recipe; else there is one mean.
    """
    rows = []
    for one in in_order(planned):
        point = found.get(one.run_id)
        means = summarized(point.scores, [name for name, _ in one.place.recipe.experts]) if point else None
        if means is None:
            continue
        of = {MEAN: (means.out_of_domain, means.tasks_out)}
        if means.tasks_in:
            of = {INSIDE: (means.in_domain, means.tasks_in), OUTSIDE: (means.out_of_domain, means.tasks_out)}
            of[H_SCORE] = (means.h_score, means.tasks_in + means.tasks_out)
        rows += [
            {**_place(one), "mean": name, "metric": means.metric, "value": value, "tasks": tasks}
            for name, (value, tasks) in of.items()
            if math.isfinite(value) and (tasks > 1 or name != MEAN)
        ]
    return rows


def _place(one: NamedPoint) -> dict[str, Any]:
    return {
        "line": one.place.line,
        **dict(zip("xy", one.place.values, strict=False)),
        "point": one.name,
        "run": one.run_id,
    }
