"""Intervals, averages and normalized accuracy against references of their own: scipy, exact coverage, arithmetic."""

from __future__ import annotations

import math
from itertools import product

import pandas as pd
import pytest
from scipy.stats import binom, binomtest

from merging.images.benchmarks.metrics import h_score, individual, summarize, wilson


def scores(*rows: tuple[str, int, int], split: str = "reporting") -> pd.DataFrame:
    """A table of scores from (task, correct, n)."""
    table = pd.DataFrame(rows, columns=["task", "correct", "n"])
    return table.assign(accuracy=table["correct"] / table["n"], split=split)


@pytest.mark.parametrize(
    ("correct", "n"), [(0, 1), (1, 1), (0, 30), (30, 30), (7, 12), (1, 200), (128, 256), (999, 1000)]
)
def test_wilson_is_scipys(correct: int, n: int) -> None:
    reference = binomtest(correct, n).proportion_ci(0.95, method="wilson")
    assert wilson(correct, n) == pytest.approx((reference.low, reference.high), rel=1e-12, abs=1e-15)


def test_there_is_no_interval_without_images() -> None:
    assert all(map(math.isnan, wilson(0, 0)))


@pytest.mark.parametrize("shares", [(0.9, 0.6), (0.99, 0.97)])
def test_the_interval_of_an_average_covers_the_truth(shares: tuple[float, float]) -> None:
    """Over all outcomes of two tasks with 30 and 20 images, each with its probability."""
    sizes, truth = (30, 20), sum(shares) / 2
    covered = 0.0
    for counts in product(*(range(n + 1) for n in sizes)):
        chance = math.prod(binom.pmf(c, n, p) for c, n, p in zip(counts, sizes, shares, strict=True))
        if chance > 1e-5:
            summary = summarize(scores(*zip("ab", counts, sizes, strict=True)), ["a", "b"])
            covered += chance * (summary.in_low <= truth <= summary.in_high)
    assert covered > 0.92


def test_the_interval_of_an_average_adds_smoothed_variances() -> None:
    """9 of 12 count as 11 of 16, 4 of 4 as 6 of 8, 18 of 36 as 20 of 40; three proportions, so a ninth of the sum."""
    summary = summarize(scores(("a", 9, 12), ("b", 4, 4), ("c", 18, 36)), ["a", "b", "c"])
    variance = (11 / 16 * 5 / 16 / 16 + 6 / 8 * 2 / 8 / 8 + 0.25 / 40) / 9
    half = 1.959963984540054 * math.sqrt(variance)
    assert summary.in_domain == pytest.approx(0.75)
    assert (summary.in_low, summary.in_high) == pytest.approx((0.75 - half, 0.75 + half))


def test_intervals_stay_within_0_and_1_and_are_open_where_all_is_right() -> None:
    summary = summarize(scores(("a", 20, 20), ("b", 20, 20), ("c", 0, 20)), ["a", "b"])
    assert (summary.in_domain, summary.in_high) == (1, 1) and 0.9 < summary.in_low < 0.97
    assert (summary.out_of_domain, summary.out_low) == (0, 0) and 0.1 < summary.out_high < 0.2


def test_a_summary_averages_over_tasks_of_one_split() -> None:
    table = pd.concat([scores(("a", 6, 10), ("b", 30, 100), ("x", 1, 2)), scores(("a", 1, 10), split="choosing")])
    summary = summarize(table, ["a", "b"])
    assert (summary.in_domain, summary.out_of_domain) == (pytest.approx(0.45), pytest.approx(0.5))
    assert summary.h_score == pytest.approx(2 / (1 / 0.45 + 1 / 0.5))
    assert (summary.tasks_in, summary.tasks_out, summary.n_in, summary.n_out) == (2, 1, 110, 2)
    assert summarize(table, ["a"], split="choosing").in_domain == pytest.approx(0.1)


def test_normalized_accuracy_is_the_mean_of_ratios() -> None:
    """0.6 / 0.8 and 0.1 / 0.4: 0.5 in the mean, where the ratio of the means is 0.58. Tasks out of domain are none."""
    table = scores(("a", 6, 10), ("b", 1, 10), ("c", 5, 10), ("x", 5, 10))
    experts = {"a": 0.8, "b": 0.4, "c": 0.0, "x": 1.0}
    summary = summarize(table, ["a", "b", "c"], experts)
    assert (summary.normalized, summary.normalized_tasks) == (pytest.approx(0.5), 2)
    without = summarize(table, ["a", "b"])
    assert math.isnan(without.normalized) and without.normalized_tasks == 0


def test_the_h_score_is_the_harmonic_mean() -> None:
    assert h_score(0.728, 0.609) == pytest.approx(0.66320, abs=5e-6)
    assert h_score(0.801, 0.577) == pytest.approx(0.67079, abs=5e-6)
    assert (h_score(0.0, 0.5), h_score(0.0, 0.0)) == (0, 0)
    assert math.isnan(h_score(math.nan, 0.5)) and math.isnan(h_score(0.5, math.nan))


def test_each_task_with_its_own_model() -> None:
    """Its own model's answers in domain; out of domain the mean of the models', as many answers as one model gives."""
    models = {
        "a": scores(("a", 9, 10), ("b", 2, 10), ("x", 3, 8)),
        "b": scores(("a", 1, 10), ("b", 7, 10), ("x", 6, 8)),
    }
    summary = individual({task: table.assign(low=0.0, high=1.0) for task, table in models.items()}).set_index("task")
    assert summary["accuracy"].to_dict() == {"a": 0.9, "b": 0.7, "x": pytest.approx(4.5 / 8)}
    assert summary["correct"].to_dict() == {"a": 9, "b": 7, "x": 4}
    assert tuple(summary.loc["x", ["low", "high"]]) == pytest.approx(wilson(4, 8))
