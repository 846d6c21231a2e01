"""Shapley values: the axioms on constructed games, seeded orders, and the table against plain numpy."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from merging.images.benchmarks.paired_scores import OUT_OF_DOMAIN
from merging.images.benchmarks.resampled_tasks import resample_task
from merging.study.partners.shapley import order_gains, shapley_table, shapley_values, total_gain
from merging.study.partners.subsets import MeasuredSubsets, list_orders, list_subsets

NAMES = ("a", "b", "c")


def random_game(players: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=1 << players)


def by_orders(values: np.ndarray, players: int) -> np.ndarray:
    """The definition: the mean over all orders of what each player adds when it joins."""
    total = np.zeros(players)
    for order in itertools.permutations(range(players)):
        for place, player in enumerate(order):
            before = sum(1 << other for other in order[:place])
            total[player] += values[before + (1 << player)] - values[before]
    return total / math.factorial(players)


def measured(players: int = 3, images: int = 40, seed: int = 0) -> MeasuredSubsets:
    """Random answers of all subsets to three own tasks and two others."""
    rng = np.random.default_rng(seed)
    names = tuple("abcdefghijkl"[:players])
    right = {
        subset: {task: rng.integers(2, size=images).astype(float) for task in ("other", *names, "further")}
        for subset in list_subsets(players, seed)
    }
    return MeasuredSubsets(names, right, len(right), seed)


@pytest.mark.parametrize("players", [1, 2, 3, 5, 8])
def test_values_add_up_and_are_means_over_all_orders(players: int) -> None:
    values = random_game(players)
    found = shapley_values(values)
    assert found.sum() == pytest.approx(values[-1] - values[0])
    if players <= 5:
        assert found == pytest.approx(by_orders(values, players))


def test_symmetric_players_have_equal_values_and_a_dummy_its_own() -> None:
    # Players 0 and 1 count alike; player 2 adds 0.25 to whatever the others have; player 3 adds nothing.
    def value(subset: int) -> float:
        alike = (subset & 1) + (subset >> 1 & 1)
        return alike**2 + 0.25 * (subset >> 2 & 1)

    found = shapley_values(np.array([value(subset) for subset in range(16)], float))
    assert found.tolist() == pytest.approx([2.0, 2.0, 0.25, 0.0])


def test_values_of_several_games_at_once_are_those_of_each() -> None:
    values = np.stack([random_game(4, 1), random_game(4, 2)], axis=1)
    assert shapley_values(values)[:, 1] == pytest.approx(shapley_values(values[:, 1]))
    with pytest.raises(ValueError, match="2\\^K"):
        shapley_values(np.zeros(3))


def test_orders_add_up_one_by_one_and_are_exact_over_all_of_them() -> None:
    values = random_game(4, 3)
    game = dict(enumerate(values))
    orders = np.array(list(itertools.permutations(range(4))))
    gains = order_gains(game, orders)
    assert gains.sum(axis=1) == pytest.approx(np.full(24, values[-1] - values[0]))
    assert gains.mean(axis=0) == pytest.approx(shapley_values(values))


def test_table_agrees_with_plain_numpy_and_adds_up() -> None:
    team = measured()
    table = shapley_table(team).set_index(["task", "expert"])
    for task in (*NAMES, OUT_OF_DOMAIN):
        sets = ["other", "further"] if task == OUT_OF_DOMAIN else [task]
        values = np.array([np.mean([team.right[s][one].mean() for one in sets]) for s in range(8)])
        assert table.loc[task, "value"].tolist() == pytest.approx(by_orders(values, 3).tolist())
        nobody, everyone = total_gain(team, task)
        assert table.loc[task, "value"].sum() == pytest.approx(everyone - nobody)
        assert (nobody, everyone) == pytest.approx((values[0], values[-1]))
    assert (table["low"] < table["value"]).all() and (table["value"] < table["high"]).all()
    assert table["n"].tolist() == [40] * 9 + [80] * 3


def test_intervals_follow_from_the_spread_of_single_answers() -> None:
    team = measured(images=400)
    table = shapley_table(team).set_index(["task", "expert"])
    answers = np.stack([team.right[subset]["b"] for subset in range(8)])
    by_image = np.stack([by_orders(column, 3) for column in answers.T])
    half = 1.96 * by_image.std(axis=0) / 20
    rows = table.loc["b"]
    assert ((rows["high"] - rows["low"]) / 2).tolist() == pytest.approx(half.tolist(), rel=0.06)


def test_larger_teams_are_sampled_and_their_intervals_hold_the_spread_of_orders() -> None:
    team = measured(players=9, images=30)
    table = shapley_table(team).set_index(["task", "expert"])
    assert len(team.right) < 300 and 1 < len(list_orders(9)) == 24
    for name, tasks in (("c", ["c"]), (OUT_OF_DOMAIN, ["other", "further"])):
        gains = {
            task: order_gains({subset: right[task] for subset, right in team.right.items()}, list_orders(9))
            for task in tasks
        }
        by_order = np.mean([one.mean(axis=2) for one in gains.values()], axis=0)
        values, rows = by_order.mean(axis=0), table.loc[name]
        draws = np.mean([resample_task(task, one.mean(axis=0)) for task, one in gains.items()], axis=0)
        spread = 2.0686576 * by_order.std(axis=0, ddof=1) / np.sqrt(24)  # t of 23 degrees of freedom
        low, high = np.percentile(draws, (2.5, 97.5), axis=1)
        assert rows["value"].tolist() == pytest.approx(values.tolist())
        assert rows["low"].tolist() == pytest.approx((values - np.hypot(values - low, spread)).tolist())
        assert rows["high"].tolist() == pytest.approx((values + np.hypot(high - values, spread)).tolist())
        assert rows["value"].sum() == pytest.approx(np.subtract(*total_gain(team, name)[::-1]))


def test_table_is_empty_until_all_subsets_are_measured() -> None:
    team = measured()
    part = MeasuredSubsets(team.experts, {0: team.right[0]}, 8)
    assert shapley_table(part).empty and not part.complete
