"""The verdict at its edges, and facts against plain arithmetic."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from merging.images.benchmarks.metrics import wilson
from merging.study.paper_facts import accuracy_facts, comparison, network_facts
from merging.study.paper_facts.comparison import BoundedValue, Comparison, Verdict, judge
from merging.study.trials.exemplar_sensitivity import OWN_EXPERTS, TASK_VECTORS, WHOLE_WEIGHTS, split_losses


def ours(low: float, high: float) -> Comparison:
    return Comparison(first=1, second=0, difference=(low + high) / 2, low=low, high=high, sample="")


@pytest.mark.parametrize(
    ("direction", "low", "high", "expected"),
    [
        (1, 0.1, 2.0, Verdict.SAME),
        (1, 0.0, 2.0, Verdict.NOT_REPRODUCED),  # an interval that touches zero holds it
        (1, -2.0, 0.0, Verdict.NOT_REPRODUCED),
        (1, -1.0, 2.0, Verdict.NOT_REPRODUCED),
        (1, -2.0, -0.1, Verdict.OTHER),
        (-1, -2.0, -0.1, Verdict.SAME),
        (-1, 0.1, 2.0, Verdict.OTHER),
        (0, -1.0, 2.0, Verdict.SAME),
        (0, 0.1, 2.0, Verdict.OTHER),
        (0, -2.0, -0.1, Verdict.OTHER),
        (1, 0.0, 0.0, Verdict.NOT_REPRODUCED),  # a count without a difference
        (1, 3.0, 3.0, Verdict.SAME),
    ],
)
def test_verdict(direction: int, low: float, high: float, expected: Verdict) -> None:
    assert judge(direction, ours(low, high)) == expected


@pytest.mark.parametrize("direction", [-1, 0, 1])
def test_what_is_missing_is_not_measured(direction: int) -> None:
    assert judge(direction, None) == Verdict.NOT_MEASURED
    assert judge(direction, ours(math.nan, math.nan)) == Verdict.NOT_MEASURED


def test_a_difference_without_an_interval_shows_nothing() -> None:
    one_pair = comparison.compare_pairs(np.array([0.9]), np.array([0.1]), "1 pair")
    assert (one_pair.difference, math.isnan(one_pair.low)) == (pytest.approx(80), True)
    assert judge(1, one_pair) == judge(0, one_pair) == Verdict.NOT_REPRODUCED


def test_independent_estimates_add_squares() -> None:
    result = comparison.compare_estimates(BoundedValue(0.7, 0.66, 0.74), BoundedValue(0.6, 0.57, 0.63), "n")
    assert (result.first, result.second, result.difference) == pytest.approx((70, 60, 10))
    assert (result.low, result.high) == pytest.approx((10 - 5, 10 + 5))


def test_each_end_takes_the_opposite_end_of_the_second_value() -> None:
    result = comparison.compare_estimates(BoundedValue(0.7, 0.67, 0.76), BoundedValue(0.6, 0.52, 0.64), "n")
    assert (result.low, result.high) == pytest.approx((10 - 5, 10 + 10))


def test_pairs_take_the_t_interval() -> None:
    result = comparison.compare_pairs(np.array([0.5, 0.7, 0.9]), np.array([0.4, 0.5, 0.6]), "3")
    assert result.difference == pytest.approx(20)
    assert result.high - result.difference == pytest.approx(4.302653 * 10 / math.sqrt(3), rel=1e-5)


def test_shares_take_wilson_intervals() -> None:
    result = comparison.compare_shares((30, 40), (10, 40), "")
    (low, _), (_, high) = wilson(30, 40), wilson(10, 40)
    assert result.low == pytest.approx(100 * (0.5 - math.hypot(0.75 - low, high - 0.25)))


def test_correlation_takes_fishers_interval() -> None:
    x = np.arange(10.0)
    y = x + np.array([1, -1] * 5)
    result = comparison.compare_correlation_with_zero(x, y, "")
    r = np.corrcoef(x, y)[0, 1]
    assert result.difference == pytest.approx(r)
    assert result.low == pytest.approx(math.tanh(math.atanh(r) - 1.959964 / math.sqrt(7)))
    assert (
        judge(1, comparison.compare_correlation_with_zero(x[:3], y[:3], "")) == Verdict.NOT_REPRODUCED
    )  # too few points
    assert judge(1, comparison.compare_correlation_with_zero(x, np.ones(10), "")) == Verdict.NOT_MEASURED


def test_spreads_draw_the_same_tasks() -> None:
    result = comparison.compare_spreads([1, 2, 3, 4], [1, 2, 3, 4], "4 tasks", "points")
    assert (result.difference, result.low, result.high) == (0, 0, 0)
    wide = comparison.compare_spreads([10, 0, 10, 0, 10, 0, 10, 0], [1.0] * 8, "8 tasks", "points")
    assert wide.difference == pytest.approx(np.std([10, 0] * 4, ddof=1)) and wide.low > 0
    assert math.isnan(comparison.compare_spreads([1], [2], "1 task", "points").difference)


def scores(accuracy: float, n: int = 100) -> pd.DataFrame:
    return pd.DataFrame({"task": ["a", "b"], "accuracy": [accuracy, accuracy], "n": [n, n]})


def test_means_of_two_models() -> None:
    result = accuracy_facts.compare_means(scores(0.8), scores(0.5))
    assert (result.first, result.second, result.difference) == pytest.approx((80, 50, 30))
    assert "n = 200 images" in result.sample and 15 < result.low < 30 < result.high < 45


def weights(vectors: float, whole: float, own: float) -> pd.DataFrame:
    rows = [
        scores(value).assign(solved=solved, exemplars=n, seed=0)
        for solved, n, value in ((TASK_VECTORS, 4, vectors), (WHOLE_WEIGHTS, 4, whole), (OWN_EXPERTS, 0, own))
    ]
    return pd.concat(rows, ignore_index=True)


def test_the_loss_of_whole_weights_is_split() -> None:
    table = weights(vectors=0.7, whole=0.2, own=0.9)
    parts = split_losses(table).iloc[0]
    assert (parts["altered"], parts["fused"], parts["lost"], parts["n"]) == pytest.approx((0.5, 0.2, 0.7, 200))
    result = accuracy_facts.compare_altered(table, 4)
    assert result is not None
    assert (result.first, result.second, result.difference) == pytest.approx((50, 20, 30))
    assert accuracy_facts.compare_altered(table, 8) is None


def test_exemplars_take_the_mean_over_draws_and_the_images_of_one() -> None:
    rows = [
        scores(value).assign(method="CAT", exemplars=n, seed=seed)
        for n, seed, value in ((1, 0, 0.6), (1, 1, 0.8), (32, 0, 0.5), (32, 1, 0.5))
    ]
    result = accuracy_facts.compare_exemplars(pd.concat(rows), "CAT", 32, 1)
    assert result is not None
    assert (result.first, result.second, result.sample) == (50, 70, "n = 200 images, reporting half")
    assert accuracy_facts.compare_exemplars(pd.concat(rows), "CAT", 64, 1) is None


def test_sizes_take_pairs_of_subsets_or_the_images_of_one() -> None:
    def counts(size: int, subset: int, correct: int) -> list[tuple[str, int, int, str, int, int]]:
        return [("A", size, subset, "a", correct + 10, 100), ("B", size, subset, "a", correct, 100)]

    names = ["method", "size", "subset", "task", "correct", "n"]
    table = pd.DataFrame([*counts(2, 0, 40), *counts(2, 1, 60), *counts(8, 2, 50)], columns=names)
    pairs, single = (accuracy_facts.compare_sizes(table, "A", "B", size) for size in (2, 8))
    assert pairs is not None and single is not None
    assert (pairs.difference, pairs.low, pairs.interval) == (pytest.approx(10), pytest.approx(10), comparison.PAIRED)
    assert single.difference == pytest.approx(10) and single.low < 0 < single.high
    assert accuracy_facts.compare_sizes(table, "A", "C", 2) is None


MASKS = pd.DataFrame(
    {
        "tensor": ["q", "q", "f", "f", "n", "n"], "expert": ["a", "b"] * 3,
        "part": ["attn.in_proj.weight"] * 2 + ["mlp.c_fc.weight"] * 2 + ["ln_1.weight"] * 2,
        "kept": [True, False, True, True, False, False],
    }
)  # fmt: skip


def test_masks_by_component_and_their_overlap() -> None:
    assert list(network_facts.find_components(MASKS)) == ["Attention"] * 2 + ["MLP"] * 2 + ["Other"] * 2
    kept = network_facts.compare_components(MASKS)
    assert (kept.first, kept.second, kept.sample) == (50, 100, "3 tensors of 2 experts")
    both = network_facts.compare_mask_overlap(MASKS, 0.5)
    assert (both.first, both.second) == pytest.approx((100 / 3, 25))


def test_swing_is_how_far_the_shares_are_apart() -> None:
    table = pd.DataFrame({"renorm": [True, True, False, False], "dropped": [0.45, 0.55, 0.29, 0.68]})
    swing = network_facts.compare_dropped_ranges(table)
    assert swing.texts == ("29 to 68%", "45 to 55%")
    assert (swing.first, swing.second, swing.low, swing.high) == pytest.approx((39, 10, 29, 29))
    assert judge(1, swing) == Verdict.SAME


def test_depth_pairs_the_last_block_with_the_first() -> None:
    rows = [
        (task, "merged", place, at, "class", drift, 9)
        for task, step in (("a", 0.1), ("b", 0.2))
        for at, (place, drift) in enumerate([("stem", 0.9), ("block 0", step), ("block 1", 3 * step), ("embedding", 0)])
    ]
    table = pd.DataFrame(rows, columns=["task", "model", "place", "position", "token", "cosine", "n"])
    result = network_facts.compare_drift_by_depth(table)
    assert result is not None and result.difference == pytest.approx(30)
    assert network_facts.compare_drift_by_depth(table[table["place"] != "block 1"]) is None


def test_coefficients_are_summed_over_tasks_and_paired_by_tensor() -> None:
    def learned(values: dict[str, list[float]]) -> pd.DataFrame:
        rows = [(expert, name, value) for name, own in values.items() for expert, value in zip("ab", own, strict=True)]
        return pd.DataFrame(rows, columns=["expert", "tensor", "coefficient"])

    masked = learned({"x": [0.5, 0.6], "y": [0.7, 0.2], "pruned": [np.nan, np.nan]})
    plain = learned({"x": [0.3, 0.3], "y": [0.2, 0.3], "pruned": [0.4, 0.4], "z": [1.0, 1.0]})
    result = network_facts.compare_coefficient_sums(masked, plain)
    assert (result.first, result.second) == pytest.approx((1.0, 0.55))
    assert result.sample == "2 tensors that are kept" and result.low < result.difference < result.high


def test_counts_sizes_and_times() -> None:
    agreement = network_facts.compare_agreement((0.646, 10), (0.862, 20))
    assert agreement.difference == pytest.approx(-21.6) and agreement.low == agreement.high
    assert network_facts.compare_file_sizes(1 << 20, 2 << 20).difference == -1
    rows = pd.DataFrame({"ratio": [50.0, 30.0], "low": [46.0, 30.0], "high": [54.0, 33.0], "rounds": [5, 3]})
    times = network_facts.compare_times(rows.iloc[0], rows.iloc[1])
    assert (times.difference, times.low) == pytest.approx((20, 15)) and times.sample == "at most 5 rounds"


def along(*accuracies_by_task: list[int]) -> pd.DataFrame:
    """Counts right of 100 images for each of several tasks at x = 0, 1, …"""
    return pd.DataFrame(
        [
            {"task": f"t{task}", "x": x / 10, "correct": correct, "n": 100}
            for task, line in enumerate(accuracies_by_task)
            for x, correct in enumerate(line)
        ]
    )


def test_ranges_are_of_means_over_tasks() -> None:
    """Means 60, 65, 50 range over 15 points, and 40, 70, 40 over 30."""
    one, other = along([50, 60, 60], [70, 70, 40]), along([20, 80, 20], [60, 60, 60])
    result = accuracy_facts.compare_ranges(one, other, "choosing half")
    assert (result.first, result.second, result.difference) == pytest.approx((15, 30, -15))
    assert result.sample == "n = 200 images, choosing half" and result.interval == comparison.RESAMPLED_IMAGES
    assert result.high + result.low == pytest.approx(-30)
    deviation = math.sqrt(0.5**2 * sum(100 * p * (1 - p) for p in (0.6, 0.7, 0.6, 0.4, 0.8, 0.6, 0.2, 0.6))) / 1.0
    assert (result.high - result.low) / 2 == pytest.approx(1.96 * deviation, rel=0.25)  # of the four means at the ends
    sure = along([100, 100], [0, 0])
    assert (
        accuracy_facts.compare_ranges(sure, sure, "choosing half").low
        == 0
        == accuracy_facts.compare_ranges(sure, sure, "").high
    )
