"""Correlations and lines against plain loops and SciPy, and the table of a paper."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from merging.study.analysis import correlation


def pearson_by_loops(x, y):
    xs, ys = x - sum(x) / len(x), y - sum(y) / len(y)
    return sum(a * b for a, b in zip(xs, ys, strict=True)) / math.sqrt(sum(a * a for a in xs) * sum(b * b for b in ys))


def mean_ranks(values):
    return np.array([sum(other < value for other in values) + sum(values == value) / 2 for value in values])


def test_line_and_correlations_are_what_loops_find():
    rng = np.random.default_rng(0)
    x = rng.normal(size=40).round(1)  # with ties
    y = 0.5 * x + rng.normal(size=40).round(1)
    found = correlation.fit_line(x, y)
    assert (found.slope, found.intercept) == pytest.approx(tuple(np.polyfit(x, y, 1)))
    assert found.pearson == pytest.approx(pearson_by_loops(x, y))
    assert found.spearman == pytest.approx(pearson_by_loops(mean_ranks(x), mean_ranks(y)))
    assert found.n == 40
    holes = correlation.fit_line(np.append(x, [np.nan, 1.0]), np.append(y, [1.0, np.inf]))
    assert holes == found


def test_points_on_a_line_have_correlations_of_one():
    x = np.array([0.1, 0.2, 0.7])
    for slope in (3.0, -3.0):
        found = correlation.fit_line(x, 1 + slope * x)
        assert (found.slope, found.intercept) == pytest.approx((slope, 1))
        assert (found.pearson, found.spearman) == pytest.approx((np.sign(slope), np.sign(slope)))
        assert abs(found.pearson) <= 1


@pytest.mark.parametrize("x", [np.ones(5), np.arange(5.0) * np.nan, np.array([1.0, 2, np.nan, np.inf, -np.inf])])
def test_no_line_through_too_few_points_or_a_side_that_does_not_vary(x):
    for fit in (correlation.fit_line(x, np.arange(5.0)), correlation.fit_line(np.arange(5.0), x)):
        assert all(math.isnan(value) for value in (fit.slope, fit.intercept, fit.pearson, fit.spearman))
        assert fit.n == np.isfinite(x).sum()
    assert correlation.fit_line(x[:0], x[:0]).n == 0


def test_a_side_that_hardly_varies_gives_no_warning():
    nearly = 1 + 1e-14 * np.arange(5)
    assert correlation.fit_line(nearly, np.arange(5.0)).spearman == pytest.approx(1)
    assert correlation.fit_line(np.arange(5.0), nearly).spearman == pytest.approx(1)


def test_pooled_and_within_correlations_differ():
    """Two runs, each falling with x, one far above the other: Simpson's paradox."""
    x = np.array([0.0, 1, 2, 10, 11, 12])
    table = pd.DataFrame({"run": list("aaabbb"), "task": list("uvwuvw"), "x": x, "y": [2.0, 1, 0, 22, 21, 20]})
    found = correlation.correlations(table, "x", "y").set_index("over")
    assert found.loc["all points", "pearson"] > 0.9
    assert found.loc["tasks of one run", "pearson"] == pytest.approx(-1)
    assert list(found["groups"]) == [1, 2]  # two runs give no coefficient on one task
    assert found.loc["tasks of one run", "points"] == 6


def test_consistency_reproduces_the_papers_table():
    """LOT, Table 10, from the rows of Table 1 of the same paper."""
    tasks = ["SUN397", "Cars", "RESISC45", "EuroSAT", "SVHN", "GTSRB", "MNIST", "DTD"]
    experts = dict(zip(tasks, (75.3, 77.7, 96.1, 99.7, 97.5, 98.7, 99.7, 79.4), strict=True))
    rows = {
        8.95: (55.2, 54.9, 66.7, 78.9, 80.2, 69.7, 97.3, 50.4),
        4.58: (67.7, 67.5, 85.7, 94.9, 93.4, 89.8, 98.7, 63.6),
    }
    for printed, accuracy in rows.items():
        scores = pd.DataFrame({"task": [*tasks, "other"], "accuracy": [*accuracy, 50.0]})
        drops = correlation.accuracy_lost(scores, experts)
        assert list(drops.index) == tasks
        assert (
            round(correlation.accuracy_spread(drops), 2) == printed
            or abs(correlation.accuracy_spread(drops) - printed) < 0.006
        )
    assert math.isnan(correlation.accuracy_spread(drops.iloc[:1]))
