"""Facts that compare accuracies, from tables of scores: rows of task, n and accuracy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from merging.analysis.paper_facts.comparison import BoundedValue, Comparison, of_estimates, of_pairs
from merging.benchmarks.metrics import Summary, summarize

if TYPE_CHECKING:
    import pandas as pd

REPORTING, CHOOSING = "reporting half", "choosing half"
GROUPS = {"in": "in_domain", "out": "out_of_domain"}
INTERVALS = {"in": ("in_domain", "in_low", "in_high", "n_in"), "out": ("out_of_domain", "out_low", "out_high", "n_out")}


def mean(rows: pd.DataFrame) -> tuple[BoundedValue, int]:
    """The unweighted mean accuracy of a model over its rows, with its interval, and the number of images."""
    half = "reporting"
    summary = summarize(rows.assign(split=half), rows["task"].astype(str).tolist(), split=half)
    return BoundedValue(summary.in_domain, summary.in_low, summary.in_high), summary.n_in


def images(n: int, half: str = REPORTING) -> str:
    """The sample of a fact in words."""
    return f"n = {n:,} images, {half}"


def of_averages(
    first: Summary | pd.Series, second: Summary | pd.Series, over: str = "in", half: str = REPORTING
) -> Comparison:
    """The difference of two averages ``over`` the tasks "in" or "out" of domain."""
    value, low, high, n = INTERVALS[over]
    one, other = (BoundedValue(*(float(getattr(row, name)) for name in (value, low, high))) for row in (first, second))
    return of_estimates(one, other, images(int(getattr(first, n)), half))


def of_rows(first: pd.DataFrame, second: pd.DataFrame) -> Comparison:
    """The difference of the mean accuracies of two models on the same tasks."""
    one, n = mean(first)
    return of_estimates(one, mean(second)[0], images(n))


def drawn(accuracy: pd.DataFrame, method: str, exemplars: int) -> pd.DataFrame:
    """A method's accuracy on every task with so many exemplars: the mean over draws, with the images of one draw."""
    rows = accuracy[(accuracy["method"] == method) & (accuracy["exemplars"] == exemplars)]
    return rows.groupby("task", sort=False, as_index=False).agg(accuracy=("accuracy", "mean"), n=("n", "first"))


def by_exemplars(accuracy: pd.DataFrame, method: str, first: int, second: int) -> Comparison | None:
    """A method with two numbers of exemplars, from the table "accuracy" of exemplar sensitivity."""
    few, many = drawn(accuracy, method, first), drawn(accuracy, method, second)
    return of_rows(few, many) if len(few) and len(many) else None


def altered(weights: pd.DataFrame, exemplars: int) -> Comparison | None:
    """What altering the pretrained weights loses against what merging task vectors loses, with so many exemplars.

    From the table "weights" of exemplar sensitivity. The difference is 2v - w - o of the accuracies with task vectors,
    with whole weights and of the own experts, whose intervals are added as if they were independent.
    """
    from merging.analysis.measurements.exemplar_sensitivity import OWN, TASK_VECTORS, WHOLE_WEIGHTS

    rows = weights.rename(columns={"solved": "method"})
    tables = [drawn(rows, *place) for place in ((TASK_VECTORS, exemplars), (WHOLE_WEIGHTS, exemplars), (OWN, 0))]
    if not all(len(table) for table in tables):
        return None
    (v, n), (w, _), (o, _) = (mean(table) for table in tables)
    first, second = v.value - w.value, o.value - v.value
    half = float(np.linalg.norm([2 * (v.high - v.low) / 2, (w.high - w.low) / 2, (o.high - o.low) / 2]))
    lost, fused = BoundedValue(first, first - half, first + half), BoundedValue(second, second, second)
    return of_estimates(lost, fused, images(n), unit="points")


def by_size(counts: pd.DataFrame, first: str, second: str, size: int) -> Comparison | None:
    """Two methods merging so many experts, from the table "counts" of the number of tasks.

    Over several subsets the interval is that of a paired t-test over them; a single one counts its images.
    """
    rows = counts[(counts["size"] == size) & counts["method"].isin([first, second])]
    rows = rows.assign(accuracy=rows["correct"] / rows["n"])
    one, other = (rows[rows["method"] == method] for method in (first, second))
    if one.empty or other.empty:
        return None
    if rows["subset"].nunique() == 1:
        return of_rows(one, other)
    means = rows.groupby(["subset", "method"])["accuracy"].mean().unstack("method").dropna()
    n = int(one.groupby("subset")["n"].sum().iloc[0])
    sample = f"{len(means)} subsets, n = {n:,} images each, {REPORTING}"
    return of_pairs(means[first].to_numpy(), means[second].to_numpy(), sample)
