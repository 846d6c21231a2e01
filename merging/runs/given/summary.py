"""Averages over scores that a run was given: of proportions only, and never together with measured ones."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from merging.benchmarks.metrics import h_score
from merging.runs.given.scores import GivenScore


@dataclass(frozen=True, slots=True)
class GivenSummary:
    """Means over tasks, unweighted, as fractions; NaN without a task. In domain is a task called like an expert.

    ``metric`` is what they are of: one that all these tasks have.
    """

    metric: str
    in_domain: float
    out_of_domain: float
    h_score: float
    tasks_in: int
    tasks_out: int


def summarized(scores: Sequence[GivenScore], experts: Collection[str]) -> GivenSummary | None:
    """The averages of the proportion that most tasks have, a task's first split; None if no score is a proportion."""
    by_metric: dict[str, dict[str, float]] = {}
    for score in scores:
        if score.proportion:
            by_metric.setdefault(score.metric, {}).setdefault(score.task, score.value)
    if not by_metric:
        return None
    metric = max(by_metric, key=lambda name: len(by_metric[name]))
    inside = [value for task, value in by_metric[metric].items() if task in experts]
    outside = [value for task, value in by_metric[metric].items() if task not in experts]
    means = _mean(inside), _mean(outside)
    return GivenSummary(metric, *means, h_score(*means), len(inside), len(outside))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan
