"""How well numbers that are known before a merge foretell what it costs: ridge regression, with two tasks left out.

A row is a team of tasks and one of them; its value is what the merge of the team's experts loses on that task. Two
rows with a task in common are not independent, so every prediction is of a row whose task, and one of its partners, the
regression has not seen: it is fitted on the teams without either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from merging.images.benchmarks.paired_scores import find_interval
from merging.study.analysis.correlation import fit_line
from merging.study.partners.subsets import MeasuredSubsets, list_few

PENALTY = 1.0  # of standardized predictors, relative to the number of rows: halves the slope of a single one
DRAWS, PERMUTATIONS, SEED = 2000, 199, 0  # resamples of teams, and permutations of the names of tasks
MIN_ROWS = 4  # fewest rows that a regression is fitted on
SIGNIFICANT = 0.05  # the largest p of predictors that beat the control
REGRESSION, COSINE_ALONE, PRETRAINED_ALONE = "all predictors", "cosine alone", "pretrained accuracy alone"
SIZE_ALONE = "team size alone"
ALONE = {COSINE_ALONE: "cosine", PRETRAINED_ALONE: "pretrained"}  # predictors that are also judged by themselves
COLUMNS = ["name", "rho", "low", "high", "control", "p", "n", "dropped", "error", "constant_error"]
Floats = NDArray[np.float64]


class TeamRow(NamedTuple):
    """A team of tasks, and the one of them that is judged."""

    team: frozenset[str]
    task: str


@dataclass(frozen=True, eq=False)
class RidgeFit:
    """A ridge regression: value = ``intercept`` + ((x − ``means``) / ``scales``) · ``slopes``.

    ``means`` and ``scales`` are (..., 1, p), ``slopes`` (..., p, 1).
    """

    means: Floats
    scales: Floats
    slopes: Floats
    intercept: float

    def predict(self, predictors: Floats) -> Floats:
        """The foretold values (..., n) of ``predictors`` (..., n, p)."""
        foretold: Floats = self.intercept + ((predictors - self.means) / self.scales @ self.slopes)[..., 0]
        return foretold


def list_losses(measured: MeasuredSubsets) -> dict[TeamRow, float]:
    """{row: v_i({i}) − v_i(S)} of all measured teams S of ``list_few``, of two or more experts, and their tasks i."""
    return {row: float(images.mean()) for row, images in _list_image_losses(measured).items()}


def find_noise_share(measured: MeasuredSubsets) -> float:
    """The mean sampling variance of a loss over the variance of all losses of ``list_losses``; about 1 if all is noise.

    A loss is a mean over n images, so its sampling variance is that of its images / n (variances with n − 1). Losses of
    a task are on the same images, so the share can exceed 1. NaN for fewer than two losses or images, or equal losses.
    """
    images = list(_list_image_losses(measured).values())
    if len(images) < 2 or min(map(len, images)) < 2:
        return float("nan")
    spread = float(np.var([one.mean() for one in images], ddof=1))
    return float(np.mean([one.var(ddof=1) / len(one) for one in images])) / spread if spread > 0 else float("nan")


def _list_image_losses(measured: MeasuredSubsets) -> dict[TeamRow, Floats]:
    """What ``list_losses`` has the means of: right with the own expert alone minus right in the team (n,), by image."""
    experts, losses = measured.experts, {}
    for subset in list_few(len(experts)):
        members = [index for index in range(len(experts)) if subset >> index & 1]
        for one in members if len(members) > 1 and subset in measured.right else ():
            if 1 << one in measured.right:
                before, after = measured.stack(experts[one], (1 << one, subset))
                losses[TeamRow(frozenset(experts[index] for index in members), experts[one])] = before - after
    return losses


def build_team_rows(
    pairs: pd.DataFrame, rows: Sequence[TeamRow], columns: Sequence[str], names: Mapping[str, str] | None = None
) -> Floats:
    """The predictors (n, p) of rows: means of these ``columns`` over the partners of the row's task.

    ``pairs`` has a row for each ordered pair (first, second). A task has the predictors of the task that it has in
    ``names``, its own without them. NaN where a pair has no finite predictor.
    """
    tasks = sorted({*pairs["first"], *pairs["second"]}.union(*(row.team for row in rows)))
    order = None if names is None else np.array([[tasks.index(names.get(task, task)) for task in tasks]])
    averages: Floats = _average_partners(pairs, rows, columns, tasks, order)[0]
    return averages


def _average_partners(
    pairs: pd.DataFrame, rows: Sequence[TeamRow], columns: Sequence[str], tasks: Sequence[str], orders: Any = None
) -> Floats:
    """``build_team_rows`` (B, n, p) with the predictors of other tasks: those at the indices ``orders`` (B, K)."""
    index = {task: place for place, task in enumerate(tasks)}
    values = np.full((len(tasks), len(tasks), len(columns)), np.nan)
    known = pairs[pairs["first"].isin(tasks) & pairs["second"].isin(tasks)]
    values[known["first"].map(index), known["second"].map(index)] = known[list(columns)].to_numpy(np.float64)
    shares = np.zeros((len(rows), len(tasks), len(tasks)))
    for place, row in enumerate(rows):
        for partner in row.team - {row.task}:
            shares[place, index[row.task], index[partner]] = 1 / (len(row.team) - 1)
    orders = np.arange(len(tasks))[None] if orders is None else np.asarray(orders)
    named = values[orders[:, :, None], orders[:, None, :]].reshape(len(orders), len(tasks) ** 2, len(columns))
    flat, finite = shares.reshape(len(rows), -1), np.isfinite(named)
    averages: Floats = np.where((flat > 0) @ ~finite, np.nan, flat @ np.where(finite, named, 0.0))
    return averages


def fit_ridge(predictors: Floats, values: Floats) -> RidgeFit:
    """The ridge regression of ``values`` (n,) on ``predictors`` (..., n, p), which are standardized, with ``PENALTY``.

    Each of several tables of predictors has its own regression.
    """
    means, scales = predictors.mean(axis=-2, keepdims=True), predictors.std(axis=-2, keepdims=True)
    scales = np.where(scales > 0, scales, 1.0)
    standardized = (predictors - means) / scales
    turned = np.swapaxes(standardized, -1, -2)
    squares = turned @ standardized + PENALTY * len(values) * np.eye(predictors.shape[-1])
    slopes = np.linalg.solve(squares, turned @ values[:, None])
    return RidgeFit(means, scales, slopes, float(values.mean()))


def foretell_unseen(predictors: Floats, values: Floats, rows: Sequence[TeamRow]) -> Floats:
    """The foretold values (..., n) of rows, by regressions that saw neither the row's task nor one of its partners.

    ``predictors`` are (..., n, p), ``values`` (n,). A row with several partners is foretold once for each of them, and
    the mean counts. NaN if fewer than ``MIN_ROWS`` rows are without these tasks.
    """
    total, count = np.zeros(predictors.shape[:-1]), np.zeros(len(rows))
    teams = [row.team for row in rows]
    for pair in combinations(sorted(frozenset().union(*teams)), 2):
        is_held_out = np.array([row.task in pair and row.team.issuperset(pair) for row in rows])
        is_seen = np.array([team.isdisjoint(pair) for team in teams])
        if is_held_out.any() and is_seen.sum() >= MIN_ROWS:
            fit = fit_ridge(predictors[..., is_seen, :], values[is_seen])
            total[..., is_held_out] += fit.predict(predictors[..., is_held_out, :])
            count[is_held_out] += 1
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def correlate_teams(
    foretold: Floats, values: Floats, rows: Sequence[TeamRow], seed: int = SEED
) -> tuple[float, float, float]:
    """Spearman's ρ of foretold and measured values (n,) with its 95 % interval, over teams sampled with replacement.

    Rows that are not foretold (NaN) are left out. The rows of a team stay together, since they are of one merge. Teams
    share tasks, so the interval is too narrow; whether predictors foretell anything is for the control to say.
    """
    known = np.isfinite(foretold) & np.isfinite(values)
    teams = pd.factorize(np.array([" ".join(sorted(row.team)) for row in rows], object)[known])[0]
    count = int(teams.max(initial=-1)) + 1
    draws = np.array([])
    if count > 1:
        samples = np.random.default_rng(seed).integers(count, size=(DRAWS, count))
        times = np.array([np.bincount(sample, minlength=count) for sample in samples], int).reshape(DRAWS, count)
        draws = correlate_ranks(foretold[known], values[known], times[:, teams])
    draws = draws[np.isfinite(draws)]
    low, high = find_interval(draws) if len(draws) else (np.nan, np.nan)
    return fit_line(foretold, values).spearman, float(low), float(high)


def correlate_ranks(x: Floats, y: Floats, times: NDArray[np.int64]) -> Floats:
    """Spearman's ρ (B,) of ``x`` and ``y`` (n,), in which pair i stands ``times`` (B, n) over; ties take mean ranks.

    NaN if one of them does not vary.
    """
    ranks = []
    for side in (x, y):
        _, place = np.unique(side, return_inverse=True)
        equal = times @ np.eye(place.max() + 1)[place]  # (B, different values)
        ranks.append((np.cumsum(equal, axis=1) - (equal - 1) / 2)[:, place])
    whole = times.sum(axis=1, keepdims=True)
    first, second = (one - (times * one).sum(axis=1, keepdims=True) / whole for one in ranks)
    products = [(times * one * other).sum(axis=1) for one, other in ((first, second), (first, first), (second, second))]
    with np.errstate(divide="ignore", invalid="ignore"):
        rho: Floats = products[0] / np.sqrt(products[1] * products[2])
    return rho


def judge_predictors(
    pairs: pd.DataFrame, losses: Mapping[TeamRow, float], columns: Sequence[str], seed: int = SEED
) -> pd.DataFrame:
    """How well predictors foretell measured losses: a row for each set of them.

    ``pairs`` is the table of ``predictors.build_pair_table``, ``losses`` {row: measured loss, a share}. Columns: name
    ("all predictors": these ``columns`` and the team's size; "cosine alone"; "pretrained accuracy alone"; "team size
    alone"), rho, low and high (see ``correlate_teams``), control (the mean rho of the control), p, n (rows), dropped
    (rows with a predictor or a loss that is not finite), error and constant_error (root mean square errors of what is
    foretold, and of the mean loss of the teams that each regression saw; shares), teams, and beats_control (p is at
    most ``SIGNIFICANT``).

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
        predictors = np.hstack([build_team_rows(pairs, rows, chosen), beside])
        nothing = np.where(np.isfinite(predictors), 0.0, np.nan)  # of which a regression foretells its mean
        foretold, constant = _foretell_finite(np.stack([predictors, nothing]), values, rows)
        rho, low, high = correlate_teams(foretold, values, rows, seed)
        control, p = np.array([]), np.nan
        if chosen and np.isfinite(rho):
            control = permute_names(pairs, rows, values, chosen, beside, seed)
            p = (1 + np.count_nonzero(control >= rho)) / (1 + len(control))
        n, mean = int(np.isfinite(foretold).sum()), float(control.mean()) if len(control) else np.nan
        errors = (float(np.sqrt(np.nanmean((one - values) ** 2))) if n else np.nan for one in (foretold, constant))
        table.append((name, rho, low, high, mean, p, n, len(rows) - n, *errors))
    result = pd.DataFrame(table, columns=COLUMNS)
    return result.assign(teams=len({row.team for row in rows}), beats_control=result["p"] <= SIGNIFICANT)


def permute_names(
    pairs: pd.DataFrame, rows: Sequence[TeamRow], values: Floats, columns: Sequence[str], beside: Floats, seed: int
) -> Floats:
    """Spearman's ρ (``PERMUTATIONS``,) if tasks have the predictors of other tasks, by random permutations of names.

    The measured ``values`` (n,) stay, and so do predictors ``beside`` these ``columns`` (n, q).
    """
    tasks, generator = sorted(frozenset().union(*(row.team for row in rows))), np.random.default_rng(seed)
    orders = np.array([generator.permutation(len(tasks)) for _ in range(PERMUTATIONS)]).reshape(-1, len(tasks))
    averages = _average_partners(pairs, rows, columns, tasks, orders)
    predictors = np.concatenate([averages, np.broadcast_to(beside, (len(orders), *beside.shape))], axis=-1)
    control = [fit_line(foretold, values).spearman for foretold in _foretell_finite(predictors, values, rows)]
    found: Floats = np.array(control, np.float64)
    finite: Floats = found[np.isfinite(found)]
    return finite


def _foretell_finite(predictors: Floats, values: Floats, rows: Sequence[TeamRow]) -> Floats:
    """What ``foretell_unseen`` foretells (B, n) of the rows with finite predictors (B, n, p) and values; NaN else."""
    is_finite = np.isfinite(predictors).all(axis=-1) & np.isfinite(values)
    foretold = np.full(is_finite.shape, np.nan)
    for known in np.unique(is_finite, axis=0):
        same, places = np.flatnonzero((is_finite == known).all(axis=1)), np.flatnonzero(known)
        if len(places):
            table = predictors[np.ix_(same, places)]
            foretold[np.ix_(same, places)] = foretell_unseen(
                table, values[places], [rows[one] for one in places.tolist()]
            )
    return foretold
