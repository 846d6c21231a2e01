"""How well numbers that are known before a merge foretell what it costs: ridge regression, with two tasks left out.

A row is a team of tasks and one of them; its value is what the merge of the team's experts loses on that task. Two
rows with a task in common are not independent, so every prediction is of a team with two tasks that the regression has
not seen: it is fitted on the teams without either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from merging.images.benchmarks.paired_scores import find_interval

PENALTIES = tuple(10.0**power for power in range(-3, 4))  # of standardized predictors, relative to the number of rows
DRAWS, SHUFFLES, SEED = 2000, 200, 0  # resamples of teams, and shuffles of the values
MIN_ROWS = 4  # fewest rows that a regression is fitted on
REGRESSION, COSINE_ALONE, PRETRAINED_ALONE = "all predictors", "cosine alone", "pretrained accuracy alone"
SHUFFLED = "shuffled losses"
ALONE = {COSINE_ALONE: "cosine", PRETRAINED_ALONE: "pretrained"}  # predictors that are also judged by themselves
Floats = NDArray[np.float64]


class TeamRow(NamedTuple):
    """A team of tasks, and the one of them that is judged."""

    team: frozenset[str]
    task: str


@dataclass(frozen=True, eq=False)
class RidgeFit:
    """A ridge regression: value = ``intercept`` + ((x − ``means``) / ``scales``) · ``slopes``, each (p,)."""

    means: Floats
    scales: Floats
    slopes: Floats
    intercept: float

    def predict(self, predictors: Floats) -> Floats:
        """The foretold values (n,) of ``predictors`` (n, p)."""
        foretold: Floats = self.intercept + (predictors - self.means) / self.scales @ self.slopes
        return foretold


def build_team_rows(pairs: pd.DataFrame, rows: Sequence[TeamRow], columns: Sequence[str]) -> Floats:
    """The predictors (n, p + 1) of rows: means over the partners of the row's task, and the number of partners.

    ``pairs`` has a row for each ordered pair (first, second) with these ``columns``.
    """
    by_pair = pairs.set_index(["first", "second"])[list(columns)]
    means = []
    for row in rows:
        partners = sorted(row.team - {row.task})
        means.append([*by_pair.loc[[(row.task, one) for one in partners]].mean(), len(partners)])
    return np.array(means, np.float64).reshape(len(rows), len(columns) + 1)


def fit_ridge(predictors: Floats, values: Floats) -> RidgeFit:
    """The ridge regression of ``values`` (n,) on ``predictors`` (n, p), which are standardized.

    The penalty is the one of ``PENALTIES`` with the smallest squared error when each row is left out in turn, which
    follows from the leverages h of a single fit, (y − ŷ) / (1 − h) (Golub, Heath and Wahba 1979).
    """
    means, scales = predictors.mean(axis=0), predictors.std(axis=0)
    scales = np.where(scales > 0, scales, 1.0)
    left, sizes, right = np.linalg.svd((predictors - means) / scales, full_matrices=False)
    centered, best = values - values.mean(), (np.inf, np.zeros(predictors.shape[1]))
    for penalty in PENALTIES:
        shrunk = sizes**2 / (sizes**2 + penalty * len(values))
        leverage = 1 / len(values) + (left**2 * shrunk).sum(axis=1)
        error = float(np.square((centered - left @ (shrunk * (left.T @ centered))) / (1 - leverage)).mean())
        if error < best[0]:
            inverse = sizes / (sizes**2 + penalty * len(values))
            best = (error, right.T @ (inverse * (left.T @ centered)))
    return RidgeFit(means, scales, best[1], float(values.mean()))


def foretell_unseen(predictors: Floats, values: Floats, rows: Sequence[TeamRow]) -> Floats:
    """The foretold values (n,) of rows, each by regressions that saw neither of two tasks of its team.

    A team of more than two tasks is foretold once for each two of them, and the mean counts. NaN if fewer than
    ``MIN_ROWS`` rows are without these tasks.
    """
    total, count = np.zeros(len(rows)), np.zeros(len(rows))
    teams = [row.team for row in rows]
    for pair in combinations(sorted(frozenset().union(*teams)), 2):
        is_held_out = np.array([team.issuperset(pair) for team in teams])
        is_seen = np.array([team.isdisjoint(pair) for team in teams])
        if is_held_out.any() and is_seen.sum() >= MIN_ROWS:
            total[is_held_out] += fit_ridge(predictors[is_seen], values[is_seen]).predict(predictors[is_held_out])
            count[is_held_out] += 1
    mean: Floats = np.divide(total, count, out=np.full(len(rows), np.nan), where=count > 0)
    return mean


def rank_correlation(first: Floats, second: Floats) -> float:
    """Spearman's ρ of two arrays (n,), ties at mean ranks; NaN if there are fewer than three or one does not vary."""
    from scipy.stats import rankdata

    if len(first) < 3 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return float("nan")
    return float(np.corrcoef(rankdata(first), rankdata(second))[0, 1])


def correlate_teams(
    foretold: Floats, values: Floats, rows: Sequence[TeamRow], seed: int = SEED
) -> tuple[float, float, float]:
    """Spearman's ρ of foretold and measured values (n,) with its 95 % interval, over teams sampled with replacement.

    Rows that are not foretold (NaN) are left out. The rows of a team stay together, since they are of one merge.
    """
    known = np.flatnonzero(np.isfinite(foretold) & np.isfinite(values))
    by_team: dict[frozenset[str], list[int]] = {}
    for index in known.tolist():
        by_team.setdefault(rows[index].team, []).append(index)
    groups, generator = list(by_team.values()), np.random.default_rng(seed)
    draws = []
    for _ in range(DRAWS if len(groups) > 1 else 0):
        sample = np.concatenate([groups[one] for one in generator.integers(len(groups), size=len(groups))])
        draws.append(rank_correlation(foretold[sample], values[sample]))
    varied = np.array(draws)[np.isfinite(draws)] if draws else np.array([])
    low, high = find_interval(varied) if len(varied) else (np.nan, np.nan)
    return rank_correlation(foretold[known], values[known]), float(low), float(high)


def judge_predictors(
    pairs: pd.DataFrame, losses: Mapping[TeamRow, float], columns: Sequence[str], seed: int = SEED
) -> pd.DataFrame:
    """How well predictors foretell measured losses: a row for each set of them, and one for the control.

    ``pairs`` is the table of ``predictors.build_pair_table``, ``losses`` {row: measured loss, a share}. Columns: name
    ("all predictors": these ``columns``; "cosine alone"; "pretrained accuracy alone"; "shuffled losses"), rho, low and
    high (its 95 % interval), n (rows), teams, and beats_control: whether low is above the control's high. The
    control is fitted with all predictors on losses that are shuffled over the rows, ``SHUFFLES`` times; its rho is the
    mean, low and high hold 95 % of the shuffles.
    """
    rows = list(losses)
    values, sets = np.array([losses[row] for row in rows], np.float64), {REGRESSION: list(columns)}
    sets |= {name: [column] for name, column in ALONE.items() if column in pairs}
    table: list[tuple[str, float, float, float, int]] = []
    for name, chosen in sets.items():
        foretold = foretell_unseen(build_team_rows(pairs, rows, chosen), values, rows)
        table.append((name, *correlate_teams(foretold, values, rows, seed), int(np.isfinite(foretold).sum())))
    predictors, generator = build_team_rows(pairs, rows, columns), np.random.default_rng(seed)
    shuffled = []
    for _ in range(SHUFFLES):
        mixed = generator.permutation(values)
        foretold = foretell_unseen(predictors, mixed, rows)
        known = np.isfinite(foretold)
        shuffled.append(rank_correlation(foretold[known], mixed[known]))
    varied = np.array(shuffled)[np.isfinite(shuffled)]
    low, high = map(float, find_interval(varied)) if len(varied) else (np.nan, np.nan)
    table.append((SHUFFLED, float(varied.mean()) if len(varied) else np.nan, low, high, table[0][-1]))
    result = pd.DataFrame(table, columns=["name", "rho", "low", "high", "n"])
    return result.assign(teams=len({row.team for row in rows}), beats_control=result["low"] > high)
