"""Who hurts whom, and the best subset of each size, against plain numpy on constructed answers."""

from __future__ import annotations

import numpy as np
import pytest

from merging.images.benchmarks.paired_scores import H_SCORE, IN_DOMAIN, OUT_OF_DOMAIN, newcombe_interval
from merging.study.partners.best_subsets import best_table, choose_best, list_chosen, score_subsets
from merging.study.partners.subsets import MeasuredSubsets
from merging.study.partners.who_hurts import AMONG_ALL, IN_PAIRS, find_worst, loss_table, order_experts

NAMES = ("a", "b", "c")


def make_team(images: int = 100, seed: int = 0) -> MeasuredSubsets:
    """Answers in which b ruins a: with both, a is never right; all else is random."""
    rng = np.random.default_rng(seed)
    right = {subset: {task: rng.integers(2, size=images).astype(float) for task in (*NAMES, "other")}
             for subset in range(8)}  # fmt: skip
    for subset in (0b011, 0b111):
        right[subset]["a"] = np.zeros(images)
    return MeasuredSubsets(NAMES, right, 8)


def test_losses_in_pairs_and_among_all_are_differences_of_the_right_subsets() -> None:
    team = make_team()
    mean = {
        (subset, task): answers.mean() for subset, by_task in team.right.items() for task, answers in by_task.items()
    }
    pairs = loss_table(team, IN_PAIRS).set_index(["task", "expert"])
    assert pairs.loc[("a", "c"), "loss"] == pytest.approx(mean[0b001, "a"] - mean[0b101, "a"])
    assert pairs.loc[("b", "a"), "loss"] == pytest.approx(mean[0b010, "b"] - mean[0b011, "b"])
    assert pairs.loc[(OUT_OF_DOMAIN, "b"), "loss"] == pytest.approx(mean[0, "other"] - mean[0b010, "other"])
    among = loss_table(team, AMONG_ALL).set_index(["task", "expert"])
    assert among.loc[("a", "c"), "loss"] == pytest.approx(mean[0b011, "a"] - mean[0b111, "a"])
    assert among.loc[(OUT_OF_DOMAIN, "a"), "loss"] == pytest.approx(mean[0b110, "other"] - mean[0b111, "other"])
    assert len(pairs) == len(among) == 9 and ("a", "a") not in pairs.index


def test_intervals_are_paired_by_image() -> None:
    rng = np.random.default_rng(3)
    before = rng.integers(2, size=200).astype(float)
    after = before.copy()
    after[np.flatnonzero(before)[:5]] = 0  # the same answers but for five images: independent intervals would be wide
    team = MeasuredSubsets(("a", "b"), {0: {"a": before}, 1: {"a": before}, 3: {"a": after}}, 4)
    row = loss_table(team).set_index(["task", "expert"]).loc[("a", "b")]
    right = int(before.sum())
    ends = newcombe_interval(right - 5, 5, 0, 200 - right)
    assert row["loss"] == pytest.approx(0.025) and (row["low"], row["high"]) == pytest.approx(ends)


def test_table_has_only_what_is_measured_and_the_worst_come_first() -> None:
    team = make_team()
    part = MeasuredSubsets(NAMES, {subset: team.right[subset] for subset in (0, 1, 2, 3)}, 8)
    assert set(loss_table(part)[["task", "expert"]].itertuples(index=False, name=None)) == {
        ("a", "b"), ("b", "a"), (OUT_OF_DOMAIN, "a"), (OUT_OF_DOMAIN, "b"),
    }  # fmt: skip
    assert loss_table(part, AMONG_ALL).empty
    assert order_experts(loss_table(part), NAMES) == list(NAMES), "until all pairs are measured"
    losses = loss_table(team)
    assert find_worst(losses)[0] == ("a", "b") and all(task != OUT_OF_DOMAIN for task, _ in find_worst(losses, 9))
    clear = losses[(losses["low"] > 0) & (losses["task"] != OUT_OF_DOMAIN)]
    assert len(clear) == len(find_worst(losses, 9)) < (losses["loss"] > 0).sum(), "no arrow where nothing is shown"
    order = order_experts(losses, NAMES)
    assert sorted(order) == list(NAMES) and order.index("c") == 1, "a and b hurt each other most, so c is between them"


def test_scores_average_over_the_tasks_of_all_experts() -> None:
    team = make_team()
    scores = score_subsets(team)
    inside = np.mean([team.right[2][task].mean() for task in NAMES])
    outside = team.right[2]["other"].mean()
    assert scores[IN_DOMAIN][2] == pytest.approx(inside) and scores[OUT_OF_DOMAIN][2] == pytest.approx(outside)
    assert scores[H_SCORE][2] == pytest.approx(2 * inside * outside / (inside + outside))


def test_best_subset_of_each_size_is_chosen_on_one_half_and_reported_on_the_other() -> None:
    choosing, reporting = make_team(seed=1), make_team(seed=2, images=300)
    best = choose_best(choosing)
    for name, values in score_subsets(choosing).items():
        for size, subset in best[name].items():
            rivals = [value for other, value in values.items() if other.bit_count() == size]
            assert values[subset] == max(rivals), (name, size)
    table = best_table(choosing, reporting).set_index(["metric", "size"])
    row, subset = table.loc[(IN_DOMAIN, 2)], best[IN_DOMAIN][2]
    own = [np.mean([half.right[subset][task].mean() for task in NAMES]) for half in (choosing, reporting)]
    assert (row["chosen"], row["value"]) == pytest.approx(tuple(own)) and row["gap"] == pytest.approx(own[0] - own[1])
    assert row["low"] < row["value"] < row["high"] and row["gap_low"] < row["gap"] < row["gap_high"]
    assert (row["tried"], row["n"]) == (3, 900)
    assert row["subset"] == " + ".join(name for place, name in enumerate(NAMES) if subset >> place & 1)
    assert {0, 7} <= set(list_chosen(best))


def test_gaps_have_the_variance_of_two_independent_samples() -> None:
    team = make_team(images=400)  # with as many images on both halves, for which the same positions would be drawn
    row = best_table(team, team).set_index(["metric", "size"]).loc[(IN_DOMAIN, 2)]
    answers = team.right[choose_best(team)[IN_DOMAIN][2]]
    variance = sum(answers[task].var() / 400 for task in NAMES) / len(NAMES) ** 2
    assert (row["gap_high"] - row["gap_low"]) / 2 == pytest.approx(1.96 * np.sqrt(2 * variance), rel=0.05)
    assert (row["high"] - row["low"]) / 2 == pytest.approx(1.96 * np.sqrt(variance), rel=0.05) and row["gap"] == 0


def test_unreported_choices_have_no_gap() -> None:
    table = best_table(make_team())
    assert table["value"].isna().all() and table["gap"].isna().all() and table["chosen"].notna().all()
