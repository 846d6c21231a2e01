"""How evenly a merge serves its tasks (LOT, Table 10), and how closely drift correlates with lost accuracy (LOT,
Fig. 1a)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def accuracy_lost(scores: pd.DataFrame, experts: Mapping[str, float]) -> pd.Series[float]:
    """Accuracy lost by a merge on each in-domain task, by task: the expert's accuracy minus the merge's, as fractions.

    ``scores`` are rows of one split. Tasks without an expert's accuracy are left out.
    """
    rows = scores[scores["task"].isin(list(experts))].set_index("task")["accuracy"].astype(float)
    drops: pd.Series[float] = pd.Series(experts, dtype=float).reindex(rows.index) - rows
    return drops.dropna()


def accuracy_spread(drops: pd.Series[float]) -> float:
    """Sample standard deviation over tasks, with n - 1 (LOT, Table 10); NaN for fewer than two tasks."""
    return float(drops.std(ddof=1)) if len(drops) > 1 else math.nan


@dataclass(frozen=True, slots=True)
class LineFit:
    """A straight line through n points, and their correlations."""

    slope: float
    intercept: float
    pearson: float
    spearman: float
    n: int


def fit_line(x: Floats, y: Floats) -> LineFit:
    """Least squares, Pearson's r and Spearman's ρ (ties take mean ranks) of ``x`` (n,) and ``y`` (n,).

    Pairs with a number that is not finite are left out. All results are NaN if fewer than three pairs remain or one
    side does not vary.
    """
    from scipy.stats import rankdata

    finite = np.isfinite(x) & np.isfinite(y)
    x, y = x[finite].astype(np.float64), y[finite].astype(np.float64)
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return LineFit(math.nan, math.nan, math.nan, math.nan, len(x))
    (variance, covariance), (_, variance_y) = np.cov(x, y, bias=True)
    slope, pearson = float(covariance / variance), float(covariance / np.sqrt(variance * variance_y))
    spearman = float(np.corrcoef(rankdata(x), rankdata(y))[0, 1])
    return LineFit(slope, float(y.mean() - slope * x.mean()), max(-1.0, min(1.0, pearson)), spearman, len(x))


def correlations(table: pd.DataFrame, x: str, y: str, run: str = "run", task: str = "task") -> pd.DataFrame:
    """Pearson's r and Spearman's ρ of two columns, over all points and within groups: over, both, points, groups.

    Points that share a task or a run are not independent, so the pooled coefficient mixes two effects. "tasks of one
    run" is the mean over runs of the coefficient across tasks; "runs on one task" is the mean over tasks of the
    coefficient across runs.
    """
    pooled = fit_line(table[x].to_numpy(np.float64), table[y].to_numpy(np.float64))
    rows: list[tuple[str, float, float, int, int]] = [("all points", pooled.pearson, pooled.spearman, pooled.n, 1)]
    for name, column in (("tasks of one run", run), ("runs on one task", task)):
        groups = [fit_line(g[x].to_numpy(np.float64), g[y].to_numpy(np.float64)) for _, g in table.groupby(column)]
        usable = [fit for fit in groups if math.isfinite(fit.pearson)]
        if usable:
            means = (float(np.mean([getattr(fit, key) for fit in usable])) for key in ("pearson", "spearman"))
            rows.append((name, *means, sum(fit.n for fit in usable), len(usable)))  # type: ignore[arg-type]
    return pd.DataFrame(rows, columns=["over", "pearson", "spearman", "points", "groups"])
