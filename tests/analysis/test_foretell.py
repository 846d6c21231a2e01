"""How well predictors foretell losses: planted relations, tasks that are left out, the control, and plain numpy."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

from merging.study.partners import foretell
from merging.study.partners.foretell import (
    COSINE_ALONE,
    PENALTY,
    PRETRAINED_ALONE,
    REGRESSION,
    SIZE_ALONE,
    TeamRow,
    build_team_rows,
    correlate_teams,
    fit_ridge,
    foretell_unseen,
    judge_predictors,
)

TASKS = "abcdefgh"
ROWS = [TeamRow(frozenset(team), task) for size in (2, 3) for team in combinations(TASKS, size) for task in team]


@pytest.fixture(scope="module")
def pairs() -> pd.DataFrame:
    """Random predictors of every ordered pair."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(permutations(TASKS, 2), columns=["first", "second"])
    accuracies = dict(zip(TASKS, rng.random(len(TASKS)), strict=True))
    table = table.assign(cosine=rng.normal(size=len(table)), alignment=rng.normal(size=len(table)))
    return table.assign(pretrained=table["first"].map(accuracies))


def lose(pairs: pd.DataFrame, noise: float, seed: int = 1) -> dict[TeamRow, float]:
    """Losses that follow the alignment of the partners, with noise."""
    rng = np.random.default_rng(seed)
    by_pair = pairs.set_index(["first", "second"])["alignment"]
    means = {row: float(np.mean([by_pair[row.task, one] for one in row.team - {row.task}])) for row in ROWS}
    return {row: mean + noise * rng.normal() for row, mean in means.items()}


def test_the_predictors_of_a_team_are_means_over_partners(pairs: pd.DataFrame) -> None:
    by_pair = pairs.set_index(["first", "second"])
    rows = [TeamRow(frozenset("abd"), "b"), TeamRow(frozenset("ab"), "b")]
    found = build_team_rows(pairs, rows, ["cosine"])
    assert found[0] == pytest.approx([(by_pair.loc[("b", "a"), "cosine"] + by_pair.loc[("b", "d"), "cosine"]) / 2])
    assert found[1] == pytest.approx([by_pair.loc[("b", "a"), "cosine"]])
    moved = build_team_rows(pairs, rows, ["cosine"], {"a": "c", "b": "a", "d": "b"})
    assert moved[0] == pytest.approx([(by_pair.loc[("a", "c"), "cosine"] + by_pair.loc[("a", "b"), "cosine"]) / 2])


def test_ridge_against_the_normal_equations() -> None:
    rng = np.random.default_rng(2)
    x, noise = rng.normal(size=(30, 4)) * [1, 10, 0.1, 1], rng.normal(size=30)
    y = x @ [1, 0.2, 3, 0] + noise + 5
    fit = fit_ridge(x, y)
    z = (x - x.mean(axis=0)) / x.std(axis=0)
    a = np.column_stack([np.ones(30), z])  # an intercept without a penalty
    expected = np.linalg.solve(a.T @ a + np.diag([0.0, *[30 * PENALTY] * 4]), a.T @ y)
    assert [fit.intercept, *fit.slopes.ravel()] == pytest.approx(expected) and fit.predict(x) == pytest.approx(
        a @ expected
    )


def test_a_constant_predictor_is_no_error() -> None:
    fit = fit_ridge(np.ones((6, 2)), np.arange(6.0))
    assert fit.predict(np.ones((1, 2))) == pytest.approx([2.5])


def test_a_prediction_does_not_depend_on_teams_with_its_tasks(pairs: pd.DataFrame) -> None:
    losses = lose(pairs, 0.5)
    values = np.array(list(losses.values()))
    x = build_team_rows(pairs, ROWS, ["cosine", "alignment"])
    found = foretell_unseen(x, values, ROWS)
    place = ROWS.index(TeamRow(frozenset("ab"), "a"))
    touched = np.array([bool(row.team & {"a", "b"}) for row in ROWS])
    changed = np.where(touched, 100.0, values)
    assert foretell_unseen(x, changed, ROWS)[place] == found[place]
    assert found[place] == pytest.approx(fit_ridge(x[~touched], values[~touched]).predict(x[[place]])[0])
    triple = ROWS.index(TeamRow(frozenset("abc"), "c"))
    thirds = []
    for pair in ("ac", "bc"):  # the judged task is never seen
        seen = np.array([row.team.isdisjoint(pair) for row in ROWS])
        thirds.append(fit_ridge(x[seen], values[seen]).predict(x[[triple]])[0])
    assert found[triple] == pytest.approx(np.mean(thirds))


def test_too_few_tasks_foretell_nothing(pairs: pd.DataFrame) -> None:
    rows = [TeamRow(frozenset(team), task) for team in combinations("abc", 2) for task in team]
    x = build_team_rows(pairs, rows, ["cosine"])
    found = foretell_unseen(x, np.arange(len(rows), dtype=float), rows)
    assert np.isnan(found).all()
    assert np.isnan(correlate_teams(found, np.arange(len(rows), dtype=float), rows)).all()


def test_errors_are_root_mean_squares_beside_those_of_means(pairs: pd.DataFrame) -> None:
    gap = pairs["cosine"].mask((pairs["first"] == "a") & (pairs["second"] == "b"))
    losses = {row: loss for row, loss in lose(pairs, 0.3).items() if len(row.team) == 2}
    table = judge_predictors(pairs.assign(cosine=gap), losses, ["alignment"]).set_index("name")
    for name in (REGRESSION, COSINE_ALONE):
        left_out = {TeamRow(frozenset("ab"), "a")} if name == COSINE_ALONE else set()  # with no cosine
        kept = {row: loss for row, loss in losses.items() if row not in left_out}
        means = [np.mean([loss for other, loss in kept.items() if not other.team & row.team]) for row in kept]
        values = np.array(list(kept.values()))
        assert table.loc[name, "constant_error"] == pytest.approx(np.sqrt(np.mean((values - means) ** 2)))
    rows = list(losses)
    x = np.hstack([build_team_rows(pairs, rows, ["alignment"]), [[2]] * len(rows)])
    residuals = foretell_unseen(x, np.array(list(losses.values())), rows) - list(losses.values())
    assert table.loc[REGRESSION, "error"] == pytest.approx(np.sqrt(np.mean(residuals**2)))
    assert table.loc[REGRESSION, "error"] < 0.8 * table.loc[REGRESSION, "constant_error"]


def test_the_interval_is_over_teams(pairs: pd.DataFrame) -> None:
    values = np.array(list(lose(pairs, 1.0).values()))
    foretold = np.array(list(lose(pairs, 1.0, seed=5).values()))
    foretold[:3] = np.nan
    rho, low, high = correlate_teams(foretold, values, ROWS)
    assert rho == pytest.approx(spearmanr(foretold[3:], values[3:]).statistic)
    teams = [np.flatnonzero([row.team == team for row in ROWS]) for team in dict.fromkeys(row.team for row in ROWS)]
    teams = [kept for kept in (one[np.isfinite(foretold[one])] for one in teams) if len(kept)]
    rng, draws = np.random.default_rng(0), []
    for _ in range(foretell.DRAWS):
        sample = np.concatenate([teams[one] for one in rng.integers(len(teams), size=len(teams))])
        draws.append(spearmanr(foretold[sample], values[sample]).statistic)
    assert (low, high) == (pytest.approx(np.percentile(draws, 2.5)), pytest.approx(np.percentile(draws, 97.5)))
    assert low < rho < high


def test_a_planted_relation_beats_the_control_and_others_do_not(
    pairs: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foretell, "DRAWS", 100)
    monkeypatch.setattr(foretell, "PERMUTATIONS", 39)
    table = judge_predictors(pairs, lose(pairs, 0.3), ["cosine", "alignment"]).set_index("name")
    assert list(table.index) == [REGRESSION, COSINE_ALONE, PRETRAINED_ALONE, SIZE_ALONE]
    assert table.loc[REGRESSION, "rho"] > 0.8 and table.loc[REGRESSION, "p"] == 1 / 40
    assert table["beats_control"].tolist() == [True, False, False, False]
    assert np.isnan(table.loc[SIZE_ALONE, "p"])
    assert (table["n"] == len(ROWS)).all() and (table["teams"] == 28 + 56).all() and (table["dropped"] == 0).all()


def test_the_control_gives_tasks_the_predictors_of_other_tasks(
    pairs: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foretell, "PERMUTATIONS", 1)
    values = np.array(list(lose(pairs, 0.3).values()))
    found = foretell.permute_names(pairs, ROWS, values, ["cosine"], np.zeros((len(ROWS), 0)), seed=4)
    former = dict(zip(np.random.default_rng(4).permutation(list(TASKS)).tolist(), TASKS, strict=True))
    renamed = pairs.assign(first=pairs["first"].map(former), second=pairs["second"].map(former))
    foretold = foretell_unseen(build_team_rows(renamed, ROWS, ["cosine"]), values, ROWS)
    assert found == pytest.approx([spearmanr(foretold, values).statistic])


def test_the_size_of_teams_is_judged_by_itself(pairs: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foretell, "PERMUTATIONS", 3)
    rng = np.random.default_rng(3)
    losses = {row: len(row.team) + 0.1 * rng.normal() for row in ROWS}
    table = judge_predictors(pairs, losses, ["alignment"]).set_index("name")["rho"]
    assert table[SIZE_ALONE] > 0.5 and table[COSINE_ALONE] < 0.3 and table[PRETRAINED_ALONE] < 0.3


def draw_losses(tasks: str, seed: int, strength: float) -> tuple[pd.DataFrame, dict[TeamRow, float]]:
    """A predictor and losses of all pairs, both with effects of the judged task, of its partner and of the pair.

    The losses follow the predictor with this ``strength``.
    """
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(permutations(tasks, 2), columns=["first", "second"])

    def draw() -> pd.Series:
        judged, partner = (dict(zip(tasks, rng.normal(size=len(tasks)), strict=True)) for _ in range(2))
        noise: pd.Series = table["first"].map(judged) + table["second"].map(partner) + rng.normal(size=len(table)) / 2
        return noise

    table = table.assign(number=draw())
    values = strength * table["number"] + draw()
    keys = [TeamRow(frozenset(pair), pair[0]) for pair in zip(table["first"], table["second"], strict=True)]
    return table, dict(zip(keys, values, strict=True))


def count_beaten_controls(strength: float, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many of 40 predictors with task effects beat the control, which 5 % of useless ones do by chance."""
    monkeypatch.setattr(foretell, "DRAWS", 0)
    monkeypatch.setattr(foretell, "PERMUTATIONS", 19)
    judged = [judge_predictors(*draw_losses("abcdef", seed, strength), ["number"]) for seed in range(40)]
    return int(sum(table["beats_control"][0] for table in judged))


@pytest.mark.parametrize(("strength", "fewest", "most"), [(0, 0, 6), (3, 36, 40)])
def test_useless_predictors_with_task_effects_rarely_beat_the_control(
    strength: float, fewest: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fewest <= count_beaten_controls(strength, monkeypatch) <= most


def test_a_control_that_permutes_rows_is_beaten_by_useless_predictors(monkeypatch: pytest.MonkeyPatch) -> None:
    def permute_rows(
        pairs: pd.DataFrame, rows: list[TeamRow], values: np.ndarray, columns: list[str], beside: np.ndarray, seed: int
    ) -> np.ndarray:
        x, rng = np.hstack([build_team_rows(pairs, rows, columns), beside]), np.random.default_rng(seed)
        orders = [rng.permutation(len(x)) for _ in range(foretell.PERMUTATIONS)]
        return np.array([spearmanr(foretell_unseen(x[order], values, rows), values).statistic for order in orders])

    monkeypatch.setattr(foretell, "permute_names", permute_rows)
    assert count_beaten_controls(0, monkeypatch) > 6  # it would call more than 15 % of them predictors


def test_rows_with_numbers_that_are_not_finite_are_dropped_and_counted(
    pairs: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foretell, "PERMUTATIONS", 3)
    losses = {row: loss for row, loss in lose(pairs, 0.3).items() if len(row.team) == 2}
    gap = (pairs["first"] == "a") & (pairs["second"] == "b")
    with_gap = pairs.assign(cosine=pairs["cosine"].mask(gap, np.inf))
    table = judge_predictors(with_gap, {**losses, TeamRow(frozenset("cd"), "c"): np.nan}, ["alignment", "cosine"])
    table = table.set_index("name")
    assert table["dropped"].to_dict() == {REGRESSION: 2, COSINE_ALONE: 2, PRETRAINED_ALONE: 1, SIZE_ALONE: 1}
    assert table.loc[REGRESSION, "n"] == len(losses) - 2 and table.loc[REGRESSION, "rho"] > 0.7
