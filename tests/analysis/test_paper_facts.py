"""The verdict at its edges, and facts against plain arithmetic."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from merging.images.benchmarks.answers import Scored
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


def split_right(share: float, n: int = 100, start: int = 0) -> np.ndarray:
    """Answers to n images, of which this share is right, from image ``start`` on."""
    return np.roll((np.arange(n) < round(share * n)).astype(float), start)


def scores(accuracy: float, n: int = 100) -> pd.DataFrame:
    return pd.DataFrame({"task": ["a", "b"], "accuracy": [accuracy, accuracy], "n": [n, n]})


def answered(accuracy: float, n: int = 100, start: int = 0, **columns: object) -> pd.DataFrame:
    """Rows of a table of accuracies of two tasks, with their answers."""
    right = [{task: split_right(accuracy, n, start)} for task in "ab"]
    return scores(accuracy, n).assign(correct=round(accuracy * n), right=right, **columns)


def test_models_on_the_same_images_are_compared_image_by_image() -> None:
    """Of 300 images of a task the second model is right on 30 fewer, and on no other one: se² = 0.1 · 0.9 / 300 / 2."""
    first, second = ({task: split_right(share, 300) for task in "abc"} for share in (0.8, 0.7))
    result = accuracy_facts.compare_answers(first, second, ["a", "b"])
    assert (result.first, result.second, result.difference) == pytest.approx((80, 70, 10))
    assert (result.sample, result.interval) == ("n = 600 images, reporting half", comparison.PAIRED_IMAGES)
    half = 196 * math.sqrt(0.1 * 0.9 / 600)
    assert (result.low, result.high) == pytest.approx((10 - half, 10 + half), abs=half / 8)
    assert result.smallest_visible == pytest.approx(2.8 / 1.96 * (result.high - result.low) / 2, rel=2e-3)
    outside = accuracy_facts.compare_answers(first, second, ["a", "b"], "out", "choosing half")
    assert outside.sample == "n = 300 images, choosing half" and outside.difference == pytest.approx(10)
    assert accuracy_facts.compare_answers(second, first, ["a", "b"]).high == pytest.approx(-result.low)


def test_scores_without_answers_give_the_difference_and_no_interval() -> None:
    result = accuracy_facts.compare_scores(Scored(scores(0.8), None), Scored(scores(0.5), None), ["a"], "in")
    assert (result.first, result.second, result.difference) == pytest.approx((80, 50, 30))
    assert result.sample == "n = 100 images, reporting half"
    assert math.isnan(result.low) and math.isnan(result.high) and math.isnan(result.smallest_visible)
    assert judge(1, result) == judge(-1, result) == Verdict.NOT_REPRODUCED
    apart = accuracy_facts.compare_answers({"a": np.ones(9)}, {"b": np.ones(9)}, ["a", "b"])
    assert judge(1, apart) == Verdict.NOT_MEASURED


def test_intervals_of_pairs_say_what_could_have_been_shown() -> None:
    """Of a paired t-test (t.975 + t.80) standard errors, of a bootstrap as many as of normal values."""
    assert math.isnan(ours(-1, 1).smallest_visible)
    first, second = np.array([1.0, 2.0, 4.0, 8.0]), np.array([0.0, 2.0, 2.0, 5.0])
    error = (first - second).std(ddof=1) / 2
    paired = comparison.compare_pairs(first, second, "4 tasks", unit="", scale=1.0)
    assert paired.smallest_visible == pytest.approx(
        (3.182446 + 0.978472) * error, rel=1e-5
    )  # t of 3 degrees of freedom
    assert math.isnan(comparison.compare_pairs(first[:1], second[:1], "1 task").smallest_visible)
    spreads = comparison.compare_spreads(first, second, "4 tasks", "points")
    assert spreads.smallest_visible == pytest.approx(2.8 / 1.96 * (spreads.high - spreads.low) / 2, rel=2e-3)


def test_rows_of_a_table_are_compared_by_their_answers() -> None:
    first, second = answered(0.8), answered(0.7)
    assert accuracy_facts.compare_rows(first, second) == accuracy_facts.compare_answers(
        {task: split_right(0.8) for task in "ab"}, {task: split_right(0.7) for task in "ab"}, ["a", "b"]
    )
    whole = pd.DataFrame({"right": [{task: split_right(0.8) for task in "abc"}]})
    assert accuracy_facts.compare_rows(whole, whole, ["c"]).sample == "n = 100 images, reporting half"
    assert accuracy_facts.compare_rows(whole, whole).sample == "n = 300 images, reporting half"


def weights(vectors: float, whole: float, own: float, n: int = 100, seeds: int = 1) -> pd.DataFrame:
    rows = [
        answered(value, n, start, solved=solved, exemplars=exemplars, seed=seed)
        for solved, exemplars, value, start in (
            (TASK_VECTORS, 4, vectors, 0), (WHOLE_WEIGHTS, 4, whole, 7), (OWN_EXPERTS, 0, own, 3),
        )
        for seed in range(seeds if exemplars else 1)
    ]  # fmt: skip
    return pd.concat(rows, ignore_index=True)


def test_the_loss_of_whole_weights_is_split() -> None:
    table = weights(vectors=0.7, whole=0.2, own=0.9)
    parts = split_losses(table).iloc[0]
    assert (parts["altered"], parts["fused"], parts["lost"], parts["n"]) == pytest.approx((0.5, 0.2, 0.7, 200))
    result = accuracy_facts.compare_altered(table, 4)
    assert result is not None
    assert (result.first, result.second, result.difference) == pytest.approx((50, 20, 30))
    sample = "n = 200 images, reporting half, mean of 1 sample of exemplars; the interval is over images only"
    assert (result.sample, result.unit) == (sample, "points")
    assert accuracy_facts.compare_altered(table, 8) is None


def test_the_parts_of_a_loss_have_the_interval_of_2v_w_o() -> None:
    """Of single images 2v - w - o is a number from -2 to 2, whose spread over images the interval is made of."""
    result = accuracy_facts.compare_altered(weights(0.6, 0.4, 0.8, n=400, seeds=2), 4)
    v, w, o = split_right(0.6, 400), split_right(0.4, 400, 7), split_right(0.8, 400, 3)
    half = 196 * (2 * v - w - o).std() / math.sqrt(800)
    assert result is not None and result.difference == pytest.approx(0, abs=1e-9)
    assert (result.low, result.high) == pytest.approx((-half, half), abs=half / 8)


def test_exemplars_take_the_mean_over_samples_and_the_images_of_one() -> None:
    rows = pd.concat(
        answered(value, start=start, method="CAT", exemplars=n, seed=seed)
        for n, seed, value, start in ((1, 0, 0.6, 0), (1, 1, 0.8, 5), (32, 0, 0.5, 0), (32, 1, 0.5, 50))
    )
    result = accuracy_facts.compare_exemplars(rows, "CAT", 32, 1)
    assert result is not None
    assert (result.first, result.second) == pytest.approx((50, 70))
    assert result.sample == (
        "n = 200 images, reporting half, mean of 2 samples of exemplars; the interval is over images only"
    )
    change = (
        split_right(0.5) / 2 + split_right(0.5, start=50) / 2 - split_right(0.6) / 2 - split_right(0.8, start=5) / 2
    )
    half = 196 * change.std() / math.sqrt(200)
    assert (result.low, result.high) == pytest.approx((-20 - half, -20 + half), abs=half / 8)
    samples = accuracy_facts.average_samples(rows, "CAT", 32)
    assert list(samples) == ["a", "b"] and set(samples["a"]) == {0.5}
    assert accuracy_facts.compare_exemplars(rows, "CAT", 64, 1) is None
    assert accuracy_facts.average_samples(rows, "LOT", 1) == {}


def test_sizes_take_pairs_of_subsets_or_the_images_of_one() -> None:
    def counts(size: int, subset: int, correct: int) -> list[tuple[object, ...]]:
        rows = (("A", correct + 10), ("B", correct))
        return [(method, size, subset, "a", k, 100, {"a": split_right(k / 100)}) for method, k in rows]

    names = ["method", "size", "subset", "task", "correct", "n", "right"]
    table = pd.DataFrame([*counts(2, 0, 40), *counts(2, 1, 60), *counts(8, 2, 50)], columns=names)
    pairs, single = (accuracy_facts.compare_sizes(table, "A", "B", size) for size in (2, 8))
    assert pairs is not None and single is not None
    assert (pairs.difference, pairs.low, pairs.interval) == (pytest.approx(10), pytest.approx(10), comparison.PAIRED)
    assert single == accuracy_facts.compare_answers({"a": split_right(0.6)}, {"a": split_right(0.5)}, ["a"])
    assert single.interval == comparison.PAIRED_IMAGES and single.low > 0  # on the same images, unlike apart
    assert accuracy_facts.compare_sizes(table, "A", "C", 2) is None


def test_votes_of_neighbors_are_paired_by_images() -> None:
    first, second = np.array([1.0, 1, 0.5, 0] * 30), np.array([1.0, 0, 0.5, 0] * 30)
    result = network_facts.compare_neighbors(first, second)
    assert (result.first, result.second, result.sample) == pytest.approx((62.5, 37.5, "n = 120 images, choosing half"))
    half = 196 * (first - second).std() / math.sqrt(120)
    assert (result.low, result.high) == pytest.approx((25 - half, 25 + half), abs=half / 8)
    assert result.interval == comparison.PAIRED_IMAGES


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


def along(*accuracies_by_task: list[int]) -> dict[float, dict[str, np.ndarray]]:
    """{x: answers} to 100 images of each of several tasks at x = 0, 1, …, from counts of right ones."""
    return {
        float(x): {f"t{task}": split_right(line[x] / 100) for task, line in enumerate(accuracies_by_task)}
        for x in range(len(accuracies_by_task[0]))
    }


def test_ranges_are_of_means_over_tasks() -> None:
    """Means 60, 65, 50 range over 15 points, and 40, 70, 40 over 30."""
    one, other = along([50, 60, 60], [70, 70, 40]), along([20, 80, 20], [60, 60, 60])
    result = accuracy_facts.compare_ranges(one, other, ["t0", "t1", "not there"], "choosing half")
    assert (result.first, result.second, result.difference) == pytest.approx((15, 30, -15))
    assert result.sample == "n = 200 images, choosing half" and result.interval == comparison.PAIRED_IMAGES
    assert result.low < -15 < result.high < 0 and not math.isnan(result.smallest_visible)
    sure = along([100, 100], [0, 0])
    same = accuracy_facts.compare_ranges(sure, sure, ["t0", "t1"], "choosing half")
    assert (same.low, same.difference, same.high) == (0, 0, 0)


def test_ranges_of_two_values_have_the_reflected_interval_of_plain_resampling() -> None:
    """Two values that differ clearly: the range is their difference, which resampling keeps."""
    rng = np.random.default_rng(5)
    one, other = along([40, 70]), along([50, 60])
    result = accuracy_facts.compare_ranges(one, other, ["t0"], "choosing half")
    images = rng.integers(100, size=(4000, 100))
    drawn = [np.ptp([answers["t0"][images].mean(axis=1) for answers in line.values()], axis=0) for line in (one, other)]
    high, low = 2 * 20 - 100 * np.percentile(drawn[0] - drawn[1], [2.5, 97.5])
    assert result.difference == pytest.approx(20)
    assert (result.low, result.high) == pytest.approx((low, high), abs=1.1)  # one image is a point
