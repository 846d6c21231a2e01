"""Averages and intervals of given scores: over proportions only, with Wilson's interval where n is known."""

from __future__ import annotations

import math

import pytest

from merging.benchmarks.metrics import wilson
from merging.runs.given.scores import GivenScore
from merging.runs.given.summary import summarized


def test_intervals_are_of_proportions_with_a_count() -> None:
    assert GivenScore("rte", "accuracy", 0.66, n=100).interval == wilson(66, 100)
    assert GivenScore("rte", "exact_match (strict)", 0.5, n=10).interval == wilson(5, 10)
    for score in (
        GivenScore("rte", "accuracy", 0.66),
        GivenScore("rte", "f1", 0.5, n=10),
        GivenScore("c", "CIDEr", 1.1, n=5),
    ):
        assert all(map(math.isnan, score.interval))


def test_averages_are_of_one_metric_in_and_out_of_domain() -> None:
    scores = [
        GivenScore("a", "accuracy", 0.8), GivenScore("b", "accuracy", 0.4), GivenScore("c", "accuracy", 0.5),
        GivenScore("a", "exact_match", 0.1), GivenScore("a", "CIDEr", 1.2), GivenScore("a", "accuracy", 0.0, "test"),
    ]  # fmt: skip
    found = summarized(scores, ("a", "b"))
    assert found is not None and (found.metric, found.tasks_in, found.tasks_out) == ("accuracy", 2, 1)
    assert (found.in_domain, found.out_of_domain) == pytest.approx((0.6, 0.5))
    assert found.h_score == pytest.approx(2 * 0.6 * 0.5 / 1.1)
    assert summarized([GivenScore("a", "perplexity", 9.0)], ("a",)) is None
