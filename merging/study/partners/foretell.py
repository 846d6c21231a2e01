"""How well numbers that are known before a merge foretell what it costs: ridge regression, with two tasks left out.

A row is a team of tasks and one of them; its value is what the merge of the team's experts loses on that task. Two
rows with a task in common are not independent, so every prediction is of a row whose task, and one of its partners, the
regression has not seen: it is fitted on the teams without either.
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
from merging.study.analysis.correlation import fit_line

PENALTY = 1.0  # of standardized predictors, relative to the number of rows: halves the slope of a single one
DRAWS, PERMUTATIONS, SEED = 2000, 199, 0  # resamples of teams, and permutations of the names of tasks
MIN_ROWS = 4  # fewest rows that a regression is fitted on
SIGNIFICANT = 0.05  # the largest p of predictors that beat the control
REGRESSION, COSINE_ALONE, PRETRAINED_ALONE = "all predictors", "cosine alone", "pretrained accuracy alone"
SIZE_ALONE = "team size alone"
ALONE = {COSINE_ALONE: "cosine", PRETRAINED_ALONE: "pretrained"}  # predictors that are also judged by themselves
COLUMNS = ["name", "rho", "low", "high", "control", "p", "n", "dropped"]
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


def build_team_rows(
    pairs: pd.DataFrame, rows: Sequence[TeamRow], columns: Sequence[str], names: Mapping[str, str] | None = None
) -> Floats:
    """The predictors (n, p) of rows: means of these ``columns`` over the partners of the row's task.

    ``pairs`` has a row for each ordered pair (first, second). A task has the predictors of the task that it has in
    ``names``, its own without them.
    """
    keys = zip(pairs["first"], pairs["second"], strict=True)
    by_pair = dict(zip(keys, pairs[list(columns)].to_numpy(np.float64), strict=True))
    names = names or {task: task for row in rows for task in row.team}
    means = [
        np.mean([by_pair[names[row.task], names[one]] for one in sorted(row.team - {row.task})], axis=0) for row in rows
    ]
    return np.array(means, np.float64).reshape(len(rows), len(columns))


def fit_ridge(predictors: Floats, values: Floats) -> RidgeFit:
    """The ridge regression of ``values`` (n,) on ``predictors`` (n, p), which are standardized, with ``PENALTY``."""
    means, scales = predictors.mean(axis=0), predictors.std(axis=0)
    scales = np.where(scales > 0, scales, 1.0)
    standardized = (predictors - means) / scales
    squares = standardized.T @ standardized + PENALTY * len(values) * np.eye(len(means))
    return RidgeFit(means, scales, np.linalg.solve(squares, standardized.T @ values), float(values.mean()))


def foretell_unseen(predictors: Floats, values: Floats, rows: Sequence[TeamRow]) -> Floats:
    """The foretold values (n,) of rows, each by regressions that saw neither the row's task nor one of its partners.

    A row with several partners is foretold once for each of them, and the mean counts. NaN if fewer than ``MIN_ROWS``
    rows are without these tasks.
    """
    total, count = np.zeros(len(rows)), np.zeros(len(rows))
    teams = [row.team for row in rows]
    for pair in combinations(sorted(frozenset().union(*teams)), 2):
        is_held_out = np.array([row.task in pair and row.team.issuperset(pair) for row in rows])
        is_seen = np.array([team.isdisjoint(pair) for team in teams])
        if is_held_out.any() and is_seen.sum() >= MIN_ROWS:
            total[is_held_out] += fit_ridge(predictors[is_seen], values[is_seen]).predict(predictors[is_held_out])
            count[is_held_out] += 1
    mean: Floats = np.divide(total, count, out=np.full(len(rows), np.nan), where=count > 0)
    return mean


def correlate_teams(
    foretold: Floats, values: Floats, rows: Sequence[TeamRow], seed: int = SEED
) -> tuple[float, float, float]:
    """Spearman's ρ of foretold and measured values (n,) with its 95 % interval, over teams sampled with replacement.

    Rows that are not foretold (NaN) are left out. The rows of a team stay together, since they are of one merge. Teams
    share tasks, so the interval is too narrow; whether predictors foretell anything is for the control to say.
    """
    known = np.flatnonzero(np.isfinite(foretold) & np.isfinite(values))
    by_team: dict[frozenset[str], list[int]] = {}
    for index in known.tolist():
        by_team.setdefault(rows[index].team, []).append(index)
    groups, generator = list(by_team.values()), np.random.default_rng(seed)
    draws = []
    for _ in range(DRAWS if len(groups) > 1 else 0):
        sample = np.concatenate([groups[one] for one in generator.integers(len(groups), size=len(groups))])
        draws.append(fit_line(foretold[sample], values[sample]).spearman)
    varied = np.array(draws)[np.isfinite(draws)] if draws else np.array([])
    low, high = find_interval(varied) if len(varied) else (np.nan, np.nan)
    return fit_line(foretold, values).spearman, float(low), float(high)


def judge_predictors(
    pairs: pd.DataFrame, losses: Mapping[TeamRow, float], columns: Sequence[str], seed: int = SEED
) -> pd.DataFrame:
    """How well predictors foretell measured losses: a row for each set of them.

    ``pairs`` is the table of ``predictors.build_pair_table``, ``losses`` {row: measured loss, a share}. Columns: name
    ("all predictors": these ``columns`` and the team's size; "cosine alone"; "pretrained accuracy alone"; "team size
    alone"), rho, low and high (see ``correlate_teams``), control (the mean rho of the control), p, n (rows), dropped
    (rows with a predictor or a loss that is not finite), teams, and beats_control (p is at most ``SIGNIFICANT``).

    The control of a set, see ``permute_names``, keeps what tasks and teams share and that predictions of left-out tasks
    are biased below zero; p is the share of all rho, the observed one among them, that are at least the observed one.
    The size of a team does not depend on names, so it has no control and no p (NaN).
    """
    rows = list(losses)
    values, sizes = np.array([losses[row] for row in rows], np.float64), np.array([[len(row.team)] for row in rows])
    sets = {REGRESSION: (list(columns), sizes)}
    sets |= {name: ([column], sizes[:, :0]) for name, column in ALONE.items() if column in pairs}
    table: list[tuple[str | float, ...]] = []
    for name, (chosen, beside) in {**sets, SIZE_ALONE: ([], sizes)}.items():
        foretold = _foretell_finite(np.hstack([build_team_rows(pairs, rows, chosen), beside]), values, rows)
        rho, low, high = correlate_teams(foretold, values, rows, seed)
        control, p = np.array([]), np.nan
        if chosen and np.isfinite(rho):
            control = permute_names(pairs, rows, values, chosen, beside, seed)
            p = (1 + np.count_nonzero(control >= rho)) / (1 + len(control))
        n = int(np.isfinite(foretold).sum())
        table.append((name, rho, low, high, float(control.mean()) if len(control) else np.nan, p, n, len(rows) - n))
    result = pd.DataFrame(table, columns=COLUMNS)
    return result.assign(teams=len({row.team for row in rows}), beats_control=result["p"] <= SIGNIFICANT)


def permute_names(
    pairs: pd.DataFrame, rows: Sequence[TeamRow], values: Floats, columns: Sequence[str], beside: Floats, seed: int
) -> Floats:
    """Spearman's ρ (``PERMUTATIONS``,) if tasks have the predictors of other tasks, by random permutations of names.

    The measured ``values`` (n,) stay, and so do predictors ``beside`` these ``columns`` (n, q).
    """
    tasks, generator = sorted(frozenset().union(*(row.team for row in rows))), np.random.default_rng(seed)
    control = []
    for _ in range(PERMUTATIONS):
        names = dict(zip(tasks, generator.permutation(tasks).tolist(), strict=True))
        predictors = np.hstack([build_team_rows(pairs, rows, columns, names), beside])
        control.append(fit_line(_foretell_finite(predictors, values, rows), values).spearman)
    found: Floats = np.array(control, np.float64)
    finite: Floats = found[np.isfinite(found)]
    return finite


def _foretell_finite(predictors: Floats, values: Floats, rows: Sequence[TeamRow]) -> Floats:
    """What ``foretell_unseen`` foretells of the rows with finite predictors and a finite value; NaN for the others."""
    finite = np.flatnonzero(np.isfinite(predictors).all(axis=1) & np.isfinite(values))
    foretold = np.full(len(rows), np.nan)
    if len(finite):
        foretold[finite] = foretell_unseen(
            predictors[finite], values[finite], [rows[index] for index in finite.tolist()]
        )
    return foretold
