"""What a team is expected to lose: planted relations, reasons for none, and plain numpy."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

from merging.study.partners import foretell
from merging.study.partners.forecast import forecast_losses
from merging.study.partners.foretell import (
    PENALTY,
    REGRESSION,
    TeamRow,
    correlate_ranks,
    find_noise_share,
    judge_predictors,
    list_losses,
)
from merging.study.partners.subsets import MeasuredSubsets, list_few

TASKS = "abcdefgh"
ROWS = [TeamRow(frozenset(team), task) for size in (2, 3) for team in combinations(TASKS, size) for task in team]
COLUMNS = ["cosine", "alignment"]


def draw_pairs() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(permutations(TASKS, 2), columns=["first", "second"])
    return table.assign(**{name: rng.uniform(-1, 1, len(table)) for name in COLUMNS})


def average(pairs: pd.DataFrame, row: TeamRow) -> list[float]:
    """The predictors of a row by hand, with the size of its team."""
    by_pair = pairs.set_index(["first", "second"])
    means = [float(np.mean([by_pair.loc[(row.task, one), name] for one in row.team - {row.task}])) for name in COLUMNS]
    return [*means, len(row.team)]


def lose(pairs: pd.DataFrame, slope: float, noise: float, seed: int = 1) -> dict[TeamRow, float]:
    rng = np.random.default_rng(seed)
    return {row: slope * average(pairs, row)[1] + noise * float(rng.normal()) for row in ROWS}


@pytest.fixture(scope="module")
def pairs() -> pd.DataFrame:
    return draw_pairs()


@pytest.fixture(scope="module")
def planted(pairs: pd.DataFrame) -> tuple[dict[TeamRow, float], pd.DataFrame]:
    """Losses that follow the alignment, and the table of what foretells them."""
    losses = lose(pairs, 0.3, 0.03)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(foretell, "PERMUTATIONS", 39)
        return losses, judge_predictors(pairs, losses, COLUMNS)


def foretell_by_hand(x: np.ndarray, y: np.ndarray, rows: list[TeamRow], row: TeamRow, predictors: list[float]) -> float:
    """The mean over the row's partners of ridge regressions on the teams without its task and this partner."""
    found = []
    for partner in row.team - {row.task}:
        seen = np.array([not one.team & {row.task, partner} for one in rows])
        mean, spread = x[seen].mean(axis=0), x[seen].std(axis=0)
        spread[spread == 0] = 1
        z = np.column_stack([np.ones(seen.sum()), (x[seen] - mean) / spread])
        weights = np.diag([0.0, *[PENALTY * seen.sum()] * x.shape[1]])
        slopes = np.linalg.solve(z.T @ z + weights, z.T @ y[seen])
        found.append(float(np.array([1, *(np.array(predictors) - mean) / spread]) @ slopes))
    return float(np.mean(found))


def test_a_forecast_is_that_of_plain_numpy(
    pairs: pd.DataFrame, planted: tuple[dict[TeamRow, float], pd.DataFrame]
) -> None:
    losses, judged = planted
    team = frozenset("bdf")
    forecast = forecast_losses(pairs, losses, judged, team)
    assert not forecast.reason and list(forecast.losses["task"]) == ["b", "d", "f"]
    others = [row for row in ROWS if row.team != team]
    x, y = np.array([average(pairs, row) for row in others]), np.array([losses[row] for row in others])
    residuals = [y[place] - foretell_by_hand(x, y, others, row, list(x[place])) for place, row in enumerate(others)]
    assert forecast.residuals == len(residuals)
    for found in forecast.losses.to_dict("records"):
        row = TeamRow(team, found["task"])
        foretold = foretell_by_hand(x, y, others, row, average(pairs, row))
        assert found["foretold"] == pytest.approx(foretold) and found["measured"] == losses[row]
        ends = [foretold + np.percentile(residuals, end) for end in (10, 90)]
        assert [found["low"], found["high"]] == pytest.approx(ends)


def test_ranges_cover_planted_losses_about_as_often_as_they_say(
    pairs: pd.DataFrame, planted: tuple[dict[TeamRow, float], pd.DataFrame]
) -> None:
    losses, judged = planted
    covered = []
    for team in combinations(TASKS, 3):
        rows = forecast_losses(pairs, losses, judged, frozenset(team)).losses
        covered += ((rows["low"] <= rows["measured"]) & (rows["measured"] <= rows["high"])).tolist()
    assert len(covered) > 100 and 0.65 < np.mean(covered) < 0.95


def test_a_team_does_not_foretell_itself(
    pairs: pd.DataFrame, planted: tuple[dict[TeamRow, float], pd.DataFrame]
) -> None:
    losses, judged = planted
    team = frozenset("bdf")
    changed = {row: 9.0 if row.team == team else loss for row, loss in losses.items()}
    unknown = {row: loss for row, loss in losses.items() if row.team != team}
    columns = ["foretold", "low", "high"]
    found = [forecast_losses(pairs, one, judged, team).losses for one in (losses, changed, unknown)]
    assert (found[0][columns] == found[1][columns]).all(axis=None) and found[0][columns].equals(found[2][columns])
    assert (found[1]["measured"] == 9).all() and found[2]["measured"].isna().all()


@pytest.mark.full
def test_nothing_is_stated_without_a_relation(pairs: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foretell, "PERMUTATIONS", 39)
    monkeypatch.setattr(foretell, "DRAWS", 10)
    stated = []
    for seed in range(20):
        losses = lose(pairs, 0.0, 0.1, seed)
        forecast = forecast_losses(pairs, losses, judge_predictors(pairs, losses, COLUMNS), frozenset("ab"))
        assert forecast.losses.empty == bool(forecast.reason)
        stated.append(not forecast.reason)
        assert not forecast.reason or "better than those of other experts do" in forecast.reason
    assert sum(stated) <= 3, "about 5 % by chance"


def test_nothing_is_stated_where_the_order_is_unknown(
    pairs: pd.DataFrame, planted: tuple[dict[TeamRow, float], pd.DataFrame]
) -> None:
    losses, judged = planted
    below = judged.assign(rho=-0.1)
    assert below["beats_control"].iloc[0]
    assert "ρ = −0.10" in forecast_losses(pairs, losses, below, frozenset("abc")).reason


def test_nothing_is_stated_where_a_constant_errs_less(
    pairs: pd.DataFrame, planted: tuple[dict[TeamRow, float], pd.DataFrame]
) -> None:
    losses, judged = planted
    errors = judged["error"].mask(judged["name"] == REGRESSION, 0.0248)
    worse = judged.assign(error=errors, constant_error=0.023)
    assert worse["beats_control"].iloc[0]
    reason = forecast_losses(pairs, losses, worse, frozenset("abc")).reason
    assert "the error is 2.48 points, and 2.30 points if the mean loss" in reason
    better = worse.assign(constant_error=0.0249)
    assert not forecast_losses(pairs, losses, better, frozenset("abc")).reason


def test_nothing_is_stated_of_other_sizes_and_ranges(
    pairs: pd.DataFrame, planted: tuple[dict[TeamRow, float], pd.DataFrame]
) -> None:
    losses, judged = planted
    four = forecast_losses(pairs, losses, judged, frozenset("abcd"))
    assert four.losses.empty and "teams of two and three experts, and this one has 4" in four.reason
    far = pairs.assign(alignment=pairs["alignment"].mask((pairs["first"] == "a") & (pairs["second"] == "b"), 5.0))
    forecast = forecast_losses(far, losses, judged, frozenset("ab"))
    assert forecast.losses.empty and (forecast.task, "gradient alignment" in forecast.reason) == ("a", True)
    unknown = far.assign(alignment=far["alignment"].mask(far["alignment"] == 5.0))
    assert forecast_losses(unknown, losses, judged, frozenset("ab")).task == "a"


def test_few_experts_are_no_error(pairs: pd.DataFrame) -> None:
    losses = {row: 0.1 * index for index, row in enumerate(ROWS) if row.team <= frozenset("abc")}
    judged = judge_predictors(pairs, losses, COLUMNS)
    assert "too few experts" in forecast_losses(pairs, losses, judged, frozenset("ab")).reason


def test_losses_are_against_the_own_expert_alone() -> None:
    rng = np.random.default_rng(3)
    right = {subset: {task: rng.integers(2, size=50).astype(float) for task in "abcd"} for subset in range(16)}
    losses = list_losses(MeasuredSubsets(tuple("abcd"), right, 16))
    assert {len(row.team) for row in losses} == {2, 3} and len(losses) == 6 * 2 + 4 * 3
    expected = right[0b0010]["b"].mean() - right[0b1010]["b"].mean()
    assert losses[TeamRow(frozenset("bd"), "b")] == pytest.approx(expected)
    part = {subset: by_task for subset, by_task in right.items() if subset != 0b0010}
    assert TeamRow(frozenset("bd"), "b") not in list_losses(MeasuredSubsets(tuple("abcd"), part, 16))


def draw_answers(images: int, effect: float) -> MeasuredSubsets:
    """Answers to images that are right as often in all teams, but for an ``effect`` of each partner."""
    rng = np.random.default_rng(6)
    chances = {subset: 0.7 - effect * (subset % 5) for subset in range(16)}
    right = {subset: {task: (rng.random(images) < chance).astype(np.uint8) for task in "abcd"}
             for subset, chance in chances.items()}  # fmt: skip
    return MeasuredSubsets(tuple("abcd"), right, 16)


def test_the_share_of_noise_is_that_of_plain_numpy() -> None:
    measured, variances, losses = draw_answers(50, 0.05), [], []
    for row in list_losses(measured):
        before = measured.right[1 << "abcd".index(row.task)][row.task].astype(float)
        after = measured.right[sum(1 << "abcd".index(one) for one in row.team)][row.task].astype(float)
        losses.append(before.mean() - after.mean())
        variances.append(np.sum((before - after - losses[-1]) ** 2) / 49 / 50)
    assert find_noise_share(measured) == pytest.approx(np.mean(variances) / np.var(losses, ddof=1))


def test_noise_is_about_everything_without_effects_and_little_with_many_images() -> None:
    assert 0.5 < find_noise_share(draw_answers(60, 0.0)) < 2.5
    assert find_noise_share(draw_answers(5000, 0.1)) < 0.05
    assert np.isnan(find_noise_share(draw_answers(1, 0.0)))
    equal = {subset: {task: np.ones(9) for task in "ab"} for subset in range(4)}
    assert np.isnan(find_noise_share(MeasuredSubsets(tuple("ab"), equal, 4)))


def test_few_subsets_are_those_of_at_most_three() -> None:
    assert list_few(4) == [subset for subset in range(16) if subset.bit_count() <= 3]
    assert all(subset.bit_count() <= 2 for subset in list_few(9)) and len(list_few(9)) == 1 + 9 + 36


def test_ranks_of_repeated_pairs_with_ties() -> None:
    rng = np.random.default_rng(4)
    x, y = rng.integers(4, size=20).astype(float), rng.integers(5, size=20).astype(float)
    times = rng.integers(3, size=(6, 20))
    expected = [spearmanr(np.repeat(x, one), np.repeat(y, one)).statistic for one in times]
    assert correlate_ranks(x, y, times) == pytest.approx(expected)
    assert np.isnan(correlate_ranks(np.ones(20), y, times)).all()
