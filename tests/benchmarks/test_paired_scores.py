"""Paired comparisons: published numbers, other implementations, plain resampling, and the coverage of intervals."""

from __future__ import annotations

import math
import subprocess
import sys
from collections import OrderedDict

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from paired_models import similar_models
from scipy.stats import binomtest, norm

from merging.images.benchmarks import paired_scores, resampled_tasks
from merging.images.benchmarks.metrics import h_score
from merging.images.benchmarks.paired_scores import (
    AVERAGE,
    H_SCORE,
    IN_DOMAIN,
    OUT_OF_DOMAIN,
    average_groups,
    compare_all,
    compare_models,
    compare_with_one,
    find_interval,
    find_share_interval,
    find_smallest_visible,
    group_tasks,
    mcnemar,
    newcombe_interval,
    resample_accuracies,
    subtract_scores,
    tell_from_best,
)
from merging.images.benchmarks.resampled_tasks import DRAWS

TASKS = ("a", "b", "c", "d")
PLAIN = settings(max_examples=25, deadline=None)
cells = st.tuples(*[st.integers(0, 60)] * 4).filter(any)


def answers(seed: int = 0, n: int = 60) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Two models of which the first is better, with most answers in common."""
    rng = np.random.default_rng(seed)
    old = {key: (rng.random(n) < 0.6).astype(float) for key in TASKS}
    new = {key: np.where(rng.random(n) < 0.3, rng.random(n) < 0.9, old[key]).astype(float) for key in old}
    return new, old


# One task


@pytest.mark.parametrize(("a", "b"), [(0, 1), (1, 0), (3, 3), (10, 2), (0, 30), (140, 95), (700, 900)])
def test_mcnemar_is_the_exact_binomial_test(a: int, b: int) -> None:
    assert mcnemar(a, b) == pytest.approx(binomtest(a, a + b, 0.5).pvalue, rel=1e-9)
    assert mcnemar(a, b) == mcnemar(b, a)


def test_mcnemar_of_nothing_of_very_much_and_of_statsmodels() -> None:
    assert mcnemar(0, 0) == 1
    assert mcnemar(0, 3600) == 0  # below the least number that a float can be
    stated = {(12, 2): 0.012939453125, (140, 95): 0.0040058185230026746, (21, 9): 0.042773945257067694}
    for counts, p in stated.items():  # mcnemar(..., exact=True) of statsmodels 0.15
        assert mcnemar(*counts) == pytest.approx(p, rel=1e-12)


def plain_newcombe(e: int, f: int, g: int, h: int) -> tuple[float, float]:
    """The interval as the paper's equations state it, with roots of quadratics for Wilson's."""
    n, z = e + f + g + h, norm.ppf(0.975)

    def roots(p: float) -> tuple[float, float]:  # of |p − x| = z √(x (1 − x) / n)
        low, high = sorted(np.roots([1 + z * z / n, -2 * p - z * z / n, p * p]).real)
        return low, high

    p1, p2 = (e + f) / n, (e + g) / n
    (l1, u1), (l2, u2) = roots(p1), roots(p2)
    product, bottom = e * h - f * g, (e + f) * (g + h) * (e + g) * (f + h)
    phi = (max(product - n / 2, 0) if product > 0 else product) / math.sqrt(bottom) if bottom else 0.0
    below = math.sqrt((p1 - l1) ** 2 - 2 * phi * (p1 - l1) * (u2 - p2) + (u2 - p2) ** 2)
    above = math.sqrt((p2 - l2) ** 2 - 2 * phi * (p2 - l2) * (u1 - p1) + (u1 - p1) ** 2)
    return p1 - p2 - below, p1 - p2 + above


@pytest.mark.parametrize(
    ("counts", "low", "high"),
    [
        ((59, 6, 16, 80), -0.1186, -0.0046),  # Fagerland, Lydersen and Laake 2017, chapter 8
        ((36, 12, 2, 0), 0.0569, 0.3404),  # cells of Newcombe 1998; here and below by a second implementation
        ((20, 12, 2, 16), 0.0562, 0.3292),
        ((30, 0, 0, 24), -0.0358, 0.0358),
        ((54, 0, 0, 0), -0.0664, 0.0664),
        ((0, 54, 0, 0), 0.9061, 1.0),
    ],
)
def test_newcombes_interval_of_known_tables(counts: tuple[int, ...], low: float, high: float) -> None:
    assert newcombe_interval(*counts) == pytest.approx((low, high), abs=5e-5)
    assert newcombe_interval(*counts) == pytest.approx(plain_newcombe(*counts), abs=1e-7)


@PLAIN
@given(cells)
def test_newcombes_interval_is_that_of_the_equations_and_turns_with_the_models(counts: tuple[int, ...]) -> None:
    e, f, g, h = counts
    low, high = newcombe_interval(e, f, g, h)
    assert (low, high) == pytest.approx(plain_newcombe(e, f, g, h), abs=1e-6)
    assert newcombe_interval(e, g, f, h) == pytest.approx((-high, -low), abs=1e-12)
    assert -1 <= low <= (f - g) / (e + f + g + h) <= high <= 1


def test_newcombes_interval_of_arrays_and_of_nothing() -> None:
    low, high = newcombe_interval([59, 36, 0], [6, 12, 0], [16, 2, 0], [80, 0, 0])
    assert low[:2] == pytest.approx([-0.1186, 0.0569], abs=5e-5) and high[1] == pytest.approx(0.3404, abs=5e-5)
    assert np.isnan(low[2]) and np.isnan(high[2])


# The bootstrap


def test_draws_depend_on_the_task_and_its_images_only() -> None:
    new, old = answers()
    alone, both = resample_accuracies({"n": new}), resample_accuracies({"o": old, "n": new})
    assert all((alone["n"][task] == both["n"][task]).all() for task in TASKS)
    assert (resample_accuracies({"n": {"a": new["a"]}})["n"]["a"] == both["n"]["a"]).all()
    thirds = {name: {"a": (old["a"] + 2 * new["b"]) / 3, "b": new["b"]} for name in "xyz"}
    shared = resample_accuracies({**thirds, "n": new})  # shares of models, whose sums are exact as well
    assert (shared["x"]["a"] == resample_accuracies({"x": thirds["x"]})["x"]["a"]).all()
    assert (shared["n"]["a"] == alone["n"]["a"]).all()
    renamed = resample_accuracies({"n": {"z": new["a"]}})
    assert (renamed["n"]["z"] != alone["n"]["a"]).any()


def test_draws_are_those_of_a_generator_seeded_by_the_task() -> None:
    """They must stay what they are: numbers on pages and in files come from them."""
    right = np.arange(5.0) == 2
    found = resample_accuracies({"m": {"cars": right}})["m"]["cars"]
    images = np.random.default_rng([0, 2512854292, 5]).integers(5, size=(DRAWS, 5))  # CRC-32 of "cars"
    assert (found == right[images].mean(axis=1)).all() and len(found) == DRAWS


def test_draws_of_many_images_are_not_kept_but_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    new, old = answers(3)
    kept = resample_accuracies({"n": new, "o": old})
    seeds = list[list[int]]()

    def count_seeds(seed: list[int]) -> np.random.Generator:
        seeds.append(seed)
        return np.random.Generator(np.random.PCG64(seed))

    monkeypatch.setattr(np.random, "default_rng", count_seeds)
    monkeypatch.setattr(resampled_tasks, "MOST_KEPT", 2 * 60 * DRAWS)
    monkeypatch.setattr(resampled_tasks, "kept_counts", counts := {})
    assert same_draws(kept, resample_accuracies({"o": old, "n": new})) and not seeds  # of models that are known
    monkeypatch.setattr(resampled_tasks, "kept_draws", OrderedDict())
    monkeypatch.setattr(resampled_tasks, "MOST_DRAWS_KEPT", 3)
    for expected in (4, 6, 8):  # the counts of two tasks are kept, and not in turn
        assert same_draws(kept, resample_accuracies({"n": new, "o": old})) and len(seeds) == expected
        assert list(counts) == [("a", 60), ("b", 60)]
    monkeypatch.setattr(resampled_tasks, "MOST_MODELS_KEPT", 1)
    assert same_draws(kept, resample_accuracies({"n": new, "o": old})) and len(seeds) == 10


def test_draws_ahead_are_those_that_models_are_compared_on(monkeypatch: pytest.MonkeyPatch) -> None:
    new, old = answers(5)
    monkeypatch.setattr(resampled_tasks, "kept_draws", OrderedDict())
    expected = resample_accuracies({"n": new, "o": old})
    monkeypatch.setattr(resampled_tasks, "kept_draws", OrderedDict())
    monkeypatch.setattr(resampled_tasks, "kept_counts", counts := {})
    sizes = {task: len(right) for task, right in new.items()}
    resampled_tasks.draw_ahead({**sizes, "empty": 0})
    assert list(counts) == list(sizes.items())
    monkeypatch.setattr(np.random, "default_rng", None)  # nothing is drawn again
    assert same_draws(expected, resample_accuracies({"n": new, "o": old}))
    counts.clear()
    monkeypatch.setattr(resampled_tasks, "MOST_KEPT", 0)
    resampled_tasks.draw_ahead(sizes)
    assert not counts


def same_draws(kept: dict, again: dict) -> bool:
    return all((kept[name][task] == again[name][task]).all() for name in kept for task in TASKS)


def test_only_the_rows_that_are_asked_for_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    new, old = answers(6)
    whole, resampled = compare_models(new, old, ["a", "b"]), list[str]()

    def resample(task: str, right: np.ndarray) -> np.ndarray:
        resampled.append(task)
        return resampled_tasks.resample_task(task, right)

    monkeypatch.setattr(paired_scores, "resample_task", resample)
    for only, tasks in (([IN_DOMAIN], "ab"), (["c"], ""), ([OUT_OF_DOMAIN, "a"], "cd"), ([H_SCORE], "abcd")):
        resampled.clear()
        table = compare_models(new, old, ["a", "b"], only=only)
        pd.testing.assert_frame_equal(table, whole[whole["over"].isin(only)].reset_index(drop=True))
        assert "".join(resampled) == tasks


def test_a_draw_has_as_many_images_and_the_spread_of_a_binomial() -> None:
    right = (np.random.default_rng(0).random(400) < 0.7).astype(float)
    found = resample_accuracies({"m": {"t": right, "all": np.ones(7)}})["m"]
    assert (found["all"] == 1).all()
    assert found["t"].mean() == pytest.approx(right.mean(), abs=4 * right.std() / 20 / 100)
    assert found["t"].std() == pytest.approx(right.std() / 20, rel=0.03)


def plain(new: dict, old: dict, keys_in: list[str], draws: int = 4000, seed: int = 9) -> dict[str, np.ndarray]:
    """The intervals of averages by drawing images, one task after another."""
    rng = np.random.default_rng(seed)
    means: dict[str, list[np.ndarray]] = {}
    for key, right in new.items():
        chosen = rng.integers(len(right), size=(draws, len(right)))
        means[key] = [right[chosen].mean(axis=1), old[key][chosen].mean(axis=1)]
    inside, outside = (
        [np.mean([means[k][i] for k in new if (k in keys_in) == kind], axis=0) for i in (0, 1)]
        for kind in (True, False)
    )
    h = [2 * inside[i] * outside[i] / (inside[i] + outside[i]) for i in (0, 1)]
    changes = {IN_DOMAIN: inside[0] - inside[1], OUT_OF_DOMAIN: outside[0] - outside[1], H_SCORE: h[0] - h[1]}
    return {name: np.percentile(values, [2.5, 97.5]) for name, values in changes.items()}


def test_intervals_of_averages_agree_with_drawing_images() -> None:
    new, old = answers()
    table = compare_models(new, old, ["a", "b"]).set_index("over")
    for name, (low, high) in plain(new, old, ["a", "b"]).items():
        assert table.loc[name, "low"] == pytest.approx(low, abs=0.08 * (high - low)), name
        assert table.loc[name, "high"] == pytest.approx(high, abs=0.08 * (high - low)), name


def test_intervals_of_any_statistic() -> None:
    draws = np.random.default_rng(0).normal([[1.0], [2.0]], 1.0, (2, 5000))
    low, high = find_interval(draws)
    assert (low, high) == (
        pytest.approx(np.percentile(draws, 2.5, axis=1)),
        pytest.approx(np.percentile(draws, 97.5, axis=1)),
    )
    observed = np.array([0.5, 1.5])
    assert find_interval(draws, observed) == (pytest.approx(2 * observed - high), pytest.approx(2 * observed - low))


# Two models


def test_rows_and_numbers() -> None:
    new, old = answers(1)
    table = compare_models(new, old, ["b", "c"])
    assert list(table) == list(paired_scores.COLUMNS)
    assert list(table["over"]) == [IN_DOMAIN, OUT_OF_DOMAIN, H_SCORE, "b", "c", "a", "d"]
    assert list(table["group"]) == [AVERAGE] * 3 + [IN_DOMAIN] * 2 + [OUT_OF_DOMAIN] * 2
    assert list(table["n"]) == [120, 120, 240, 60, 60, 60, 60] and list(table["tasks"]) == [2, 2, 4, 1, 1, 1, 1]
    rows = table.set_index("over")
    assert rows.loc[IN_DOMAIN, "accuracy"] == pytest.approx((new["b"].mean() + new["c"].mean()) / 2)
    assert rows.loc["a", "difference"] == pytest.approx(new["a"].mean() - old["a"].mean())
    ends = [h_score(rows.loc[IN_DOMAIN, name], rows.loc[OUT_OF_DOMAIN, name]) for name in ("accuracy", "reference")]
    assert rows.loc[H_SCORE, "difference"] == pytest.approx(ends[0] - ends[1])
    assert (table["low"] <= table["difference"]).all() and (table["difference"] <= table["high"]).all()
    only_new, only_old = (int(((x["a"] == 1) & (y["a"] == 0)).sum()) for x, y in ((new, old), (old, new)))
    both, neither = int((new["a"] * old["a"]).sum()), int(((1 - new["a"]) * (1 - old["a"])).sum())
    assert rows.loc["a", "p"] == mcnemar(only_new, only_old)
    assert (rows.loc["a", "low"], rows.loc["a", "high"]) == newcombe_interval(both, only_new, only_old, neither)
    assert table["p"].isna().tolist() == [True] * 3 + [False] * 4


def test_domains_of_one_task_of_none_and_tasks_of_neither() -> None:
    new, old = answers(2)
    rows = compare_models(new, old, ["a"], ["b", "c"]).set_index("over")
    assert rows.loc[IN_DOMAIN, ["difference", "low", "high", "p"]].equals(
        rows.loc["a", ["difference", "low", "high", "p"]].rename(IN_DOMAIN)
    )
    assert rows.loc["d", "group"] == "other" and rows.loc[H_SCORE, "n"] == 180
    assert list(compare_models(new, old, TASKS)["over"]) == [IN_DOMAIN, *TASKS]
    empty = compare_models({**new, "e": np.zeros(0)}, {**old, "e": np.zeros(0), "f": np.ones(3)}, ["a"])
    assert set(empty["over"]) == {IN_DOMAIN, OUT_OF_DOMAIN, H_SCORE, *TASKS}
    with pytest.raises(ValueError, match="different numbers of images of a"):
        compare_models(new, {**old, "a": old["a"][1:]}, ["a"])


def test_shares_of_models_have_the_interval_of_the_bootstrap() -> None:
    new, old = answers(4)
    shares = {task: (new[task] + old[task]) / 2 for task in new}
    row = compare_models(shares, old, ["a"]).set_index("over").loc["b"]
    draws = resample_accuracies({"s": shares, "o": old})
    assert (row["low"], row["high"]) == find_interval(draws["s"]["b"] - draws["o"]["b"]) and np.isnan(row["p"])
    assert row["difference"] == pytest.approx((new["b"] - old["b"]).mean() / 2)


def test_models_that_answer_alike_differ_by_nothing() -> None:
    new, _ = answers(2)
    same = compare_models(new, new, ["a"])
    assert (same["difference"] == 0).all() and (same["p"].dropna() == 1).all()
    assert (same.loc[same["over"].isin([OUT_OF_DOMAIN, H_SCORE]), ["low", "high"]] == 0).all(axis=None)
    np.testing.assert_allclose(same["low"], -same["high"], atol=1e-12)
    nothing = {task: np.zeros(9) for task in TASKS}
    assert (compare_models(nothing, nothing, ["a"])["difference"] == 0).all()  # the harmonic mean of two zeros is zero


def test_scores_alone_have_the_same_differences_but_no_intervals() -> None:
    new, old = answers()
    scores, reference = (
        pd.DataFrame(
            [(key, right.mean(), len(right)) for key, right in model.items()], columns=["task", "accuracy", "n"]
        )
        for model in (new, old)
    )
    table, expected = subtract_scores(scores, reference, ["a", "b"]), compare_models(new, old, ["a", "b"])
    assert table[["low", "high", "p"]].isna().all(axis=None)
    shown = [name for name in table if name not in ("low", "high", "p")]
    pd.testing.assert_frame_equal(table[shown], expected[shown])


matched = st.integers(1, 40).flatmap(lambda n: st.tuples(*[arrays.arrays(bool, n)] * 2, st.permutations(range(n))))


@PLAIN
@given(matched)
def test_the_order_of_models_and_of_images(drawn: tuple[np.ndarray, np.ndarray, list[int]]) -> None:
    first, second, order = drawn
    rights = {"a": first * 1.0, "b": second * 1.0}, {"a": second * 1.0, "b": second * 1.0}
    table, back = compare_models(*rights, ["a"]), compare_models(*rights[::-1], ["a"])
    for column, other in (("difference", "difference"), ("low", "high"), ("high", "low")):
        np.testing.assert_allclose(table[column], -back[other], atol=1e-12)
    np.testing.assert_array_equal(table["p"], back["p"])
    moved = compare_models(*({task: right[order] for task, right in one.items()} for one in rights), ["a"])
    single = table["p"].notna()
    pd.testing.assert_frame_equal(table[single], moved[single])  # Newcombe's interval and p do not know the order
    np.testing.assert_allclose(table["difference"], moved["difference"], atol=1e-12)


def test_a_share_has_the_interval_of_a_proportion() -> None:
    holds = {"a": np.arange(200) < 60, "b": np.arange(100) < 50, "c": np.zeros(0, bool)}
    share, low, high, n = find_share_interval(holds)
    half = 1.96 * math.sqrt(200 * 0.21 + 100 * 0.25) / 300
    assert (share, n) == (pytest.approx(110 / 300), 300)
    assert (low, high) == pytest.approx((share - half, share + half), abs=0.08 * half)
    assert find_share_interval({"a": np.ones(9, bool)}) == (1, 1, 1, 9) and np.isnan(find_share_interval({})[0])


def test_a_difference_of_the_smallest_visible_size_is_shown_four_times_in_five() -> None:
    rng = np.random.default_rng(0)
    smallest = find_smallest_visible(-0.02, 0.02)
    assert smallest == pytest.approx((norm.ppf(0.975) + norm.ppf(0.8)) * 0.02 / norm.ppf(0.975))
    error = 0.02 / norm.ppf(0.975)
    assert (rng.normal(smallest, error, 40_000) > 0.02).mean() == pytest.approx(0.8, abs=0.01)


# Many models


def test_all_pairs_have_the_numbers_of_two_models() -> None:
    models = similar_models(np.random.default_rng(1), [0.55, 0.75, 0.6, 0.62], 80)
    for over in (IN_DOMAIN, OUT_OF_DOMAIN, H_SCORE, "c"):
        found = compare_all(models, "abcde", over)
        assert list(found.scores["model"]) == list(found.order) and sorted(found.order) == sorted(models)
        assert list(found.pairs) == list(paired_scores.PAIR_COLUMNS) and len(found.pairs) == 6
        assert found.scores["value"].is_monotonic_decreasing
        for row in found.pairs.to_dict("records"):
            rows = compare_models(models[row["first"]], models[row["second"]], "abcde").set_index("over")
            columns = ["difference", "low", "high"]
            assert [row[name] for name in columns] == pytest.approx(rows.loc[over, columns].tolist(), abs=1e-12)
            assert row["family_low"] <= row["low"] + 0.01 and row["high"] - 0.01 <= row["family_high"]
            assert row["differs"] == (not row["family_low"] <= 0 <= row["family_high"])
    first = found.scores.iloc[0]
    assert (first["low"], first["high"]) == find_interval(resample_accuracies(models)[found.order[0]]["c"])


def test_family_wise_intervals_are_those_of_the_largest_distance() -> None:
    models = similar_models(np.random.default_rng(2), [0.5, 0.55, 0.6], 90, "ab")
    found = compare_all(models, "ab", IN_DOMAIN)
    draws = {
        name: average_groups(by_task, group_tasks("ab", "ab"))[IN_DOMAIN]
        for name, by_task in resample_accuracies(models).items()
    }
    changes = np.array([draws[a] - draws[b] for a, b in found.pairs[["first", "second"]].to_numpy()])
    differences, errors = found.pairs["difference"].to_numpy(), changes.std(axis=1, ddof=1)
    largest = (np.abs(changes - differences[:, None]) / errors[:, None]).max(axis=0)
    half = np.quantile(largest, 0.95) * errors
    np.testing.assert_allclose(found.pairs["family_low"], differences - half, atol=1e-12)
    np.testing.assert_allclose(found.pairs["family_high"], differences + half, atol=1e-12)
    assert np.quantile(largest, 0.95) == pytest.approx(2.34, abs=0.1)  # three means: 2.34 for normal ones


@pytest.mark.parametrize("over", [IN_DOMAIN, OUT_OF_DOMAIN, H_SCORE, "c"])
def test_one_model_is_compared_with_all_others_in_any_blocks(over: str, monkeypatch: pytest.MonkeyPatch) -> None:
    models = similar_models(np.random.default_rng(5), [0.6, 0.5, 0.7, 0.65, 0.6], 70, "abc")
    models["m3"].pop("b")  # so it is no task of all models
    found = compare_with_one(models, "m2", "ab", over)
    shared = {name: {task: right[task] for task in "ac"} for name, right in models.items()}
    groups = group_tasks("ac", "ab")
    draws = {name: by_task | average_groups(by_task, groups) for name, by_task in resample_accuracies(shared).items()}
    means = {name: {task: np.array(right.mean()) for task, right in one.items()} for name, one in shared.items()}
    values = {name: by_task | average_groups(by_task, groups) for name, by_task in means.items()}
    differences = {name: values["m2"][over] - values[name][over] for name in values if name != "m2"}
    changes = {name: draws["m2"][over] - draws[name][over] for name in differences}
    distances = [abs(changes[name] - differences[name]) / changes[name].std(ddof=1) for name in changes]
    quantile = np.percentile(np.max(distances, axis=0), 95)
    assert [name for name, *_ in found] == sorted(differences, key=lambda name: differences[name])
    for name, difference, low, high, differs in found:
        half = quantile * changes[name].std(ddof=1)
        assert difference == pytest.approx(differences[name])
        assert (low, high) == (pytest.approx(difference - half), pytest.approx(difference + half))
        assert differs == (abs(difference) > half)
    monkeypatch.setattr(paired_scores, "MOST_AT_ONCE", 3)
    assert compare_with_one(models, "m2", "ab", over) == found
    same = compare_with_one({"x": shared["m0"], "y": shared["m0"]}, "x", "ab", over)
    assert same == [("y", 0, 0, 0, False)]


def test_the_same_answers_are_equal_and_opposite_ones_differ() -> None:
    right = np.ones(20)
    found = compare_all({"x": {"a": right}, "y": {"a": right}, "z": {"a": 0 * right}}, "a", IN_DOMAIN)
    assert found.pairs["differs"].tolist() == [False, True, True]
    assert found.pairs["family_low"].tolist() == found.pairs["family_high"].tolist() == [0, 1, 1]
    assert found.letters == {"x": "a", "y": "a", "z": "b"}
    best = tell_from_best(found)
    assert best == ("x", "y", 0, 0, 0, ("y",))


@PLAIN
@given(st.integers(0, 10_000), st.integers(2, 9), st.integers(20, 300))
def test_models_share_a_letter_if_and_only_if_they_do_not_differ(seed: int, count: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    models = similar_models(rng, rng.uniform(0.3, 0.9, count).tolist(), n, "ab")
    found = compare_all(models, "ab", IN_DOMAIN)
    for row in found.pairs.to_dict("records"):
        assert bool(set(found.letters[row["first"]]) & set(found.letters[row["second"]])) != row["differs"]
    letters = "".join(found.letters[name] for name in found.order)
    assert letters[0] == "a" and sorted(set(letters)) == sorted(set(letters), key=letters.index)
    groups = {letter: {name for name in found.order if letter in found.letters[name]} for letter in letters}
    assert not any(one < other for one in groups.values() for other in groups.values())
    best = tell_from_best(found)
    assert (best.best, best.second) == found.order[:2]
    row = found.pairs.iloc[0]
    assert (best.difference, best.low, best.high) == (row["difference"], row["family_low"], row["family_high"])
    ties = [name for name in found.order[1:] if set(found.letters[name]) & set(found.letters[best.best])]
    assert list(best.ties) == ties


def test_more_groups_of_models_than_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paired_scores, "LETTERS", "ab")
    models = {f"m{k}": {"t": (np.arange(400) < 100 * k) * 1.0} for k in range(5)}
    assert list(compare_all(models, "t", "t").letters.values()) == ["a", "b", "a₂", "b₂", "a₃"]


def test_what_cannot_be_compared_is_refused() -> None:
    new, old = answers()
    with pytest.raises(ValueError, match="at least two models"):
        compare_all({"new": new}, TASKS, IN_DOMAIN)
    for over in (OUT_OF_DOMAIN, H_SCORE, "e"):
        with pytest.raises(ValueError, match=f"no images in common for {over}"):
            compare_all({"new": new, "old": old}, TASKS, over)


def test_importing_it_loads_neither_pandas_nor_scipy() -> None:
    code = "import sys, merging.images.benchmarks.paired_scores; print({'pandas', 'scipy', 'torch'} & set(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "set()"
