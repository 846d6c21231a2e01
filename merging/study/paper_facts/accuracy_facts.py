"""Facts that compare accuracies, from tables of scores: rows of task, n and accuracy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from merging.images.benchmarks.metrics import Z95, Summary, summarize
from merging.study.paper_facts.comparison import (
    RESAMPLED_IMAGES,
    RESAMPLES,
    SEED,
    BoundedValue,
    Comparison,
    compare_estimates,
    compare_pairs,
)

if TYPE_CHECKING:
    import pandas as pd

REPORTING, CHOOSING = "reporting half", "choosing half"
GROUP_COLUMNS = {"in": "in_domain", "out": "out_of_domain"}
INTERVAL_COLUMNS = {
    "in": ("in_domain", "in_low", "in_high", "n_in"),
    "out": ("out_of_domain", "out_low", "out_high", "n_out"),
}


def mean_accuracy(rows: pd.DataFrame) -> tuple[BoundedValue, int]:
    """The unweighted mean accuracy of a model over its rows, with its interval, and the number of images."""
    half = "reporting"
    summary = summarize(rows.assign(split=half), rows["task"].astype(str).tolist(), split=half)
    return BoundedValue(summary.in_domain, summary.in_low, summary.in_high), summary.n_in


def describe_sample(n: int, half: str = REPORTING) -> str:
    """The sample of a fact in words."""
    return f"n = {n:,} images, {half}"


def compare_averages(
    first: Summary | pd.Series, second: Summary | pd.Series, over: str = "in", half: str = REPORTING
) -> Comparison:
    """The difference of two averages ``over`` the tasks "in" or "out" of domain."""
    value, low, high, n = INTERVAL_COLUMNS[over]
    means = (BoundedValue(*(float(getattr(row, name)) for name in (value, low, high))) for row in (first, second))
    mean_first, mean_second = means
    return compare_estimates(mean_first, mean_second, describe_sample(int(getattr(first, n)), half))


def compare_means(first: pd.DataFrame, second: pd.DataFrame) -> Comparison:
    """The difference of the mean accuracies of two models on the same tasks."""
    mean, n = mean_accuracy(first)
    return compare_estimates(mean, mean_accuracy(second)[0], describe_sample(n))


def compare_ranges(first: pd.DataFrame, second: pd.DataFrame, half: str) -> Comparison:
    """The ranges of two methods' mean accuracies over the values x of a parameter: the largest minus the smallest.

    Tables have task, x, correct, n. The interval is normal, with the spread of the difference if the images of every
    task and value are sampled again independently. As all values have the same images, it is wider than necessary.
    """
    generator = np.random.default_rng(SEED)
    ranges, resampled = [], []
    for table in (first, second):
        counts = table.pivot(index="x", columns="task", values=["correct", "n"])
        correct, n = (counts[name].to_numpy(np.int64) for name in ("correct", "n"))  # (values, tasks)
        ranges.append(100 * float(np.ptp((correct / n).mean(axis=1))))
        resampled.append(
            100 * np.ptp((generator.binomial(n, correct / n, (RESAMPLES, *n.shape)) / n).mean(axis=2), axis=1)
        )
    difference = ranges[0] - ranges[1]
    half_width = Z95 * float((resampled[0] - resampled[1]).std(ddof=1))
    n_per_value = int(first[first["x"] == first["x"].iloc[0]]["n"].sum())
    return Comparison(
        first=ranges[0], second=ranges[1], difference=difference, low=difference - half_width,
        high=difference + half_width, sample=describe_sample(n_per_value, half), unit="points",
        interval=RESAMPLED_IMAGES,
    )  # fmt: skip


def sampled_accuracy(accuracy: pd.DataFrame, method: str, exemplars: int) -> pd.DataFrame:
    """A method's accuracy on every task with a number of exemplars: the mean over samples, and n of a single sample."""
    rows = accuracy[(accuracy["method"] == method) & (accuracy["exemplars"] == exemplars)]
    return rows.groupby("task", sort=False, as_index=False).agg(accuracy=("accuracy", "mean"), n=("n", "first"))


def compare_exemplars(accuracy: pd.DataFrame, method: str, first: int, second: int) -> Comparison | None:
    """A method with two numbers of exemplars, from the table "accuracy" of exemplar sensitivity."""
    few, many = sampled_accuracy(accuracy, method, first), sampled_accuracy(accuracy, method, second)
    return compare_means(few, many) if len(few) and len(many) else None


def compare_altered(weights: pd.DataFrame, exemplars: int) -> Comparison | None:
    """The loss by altering the pretrained weights, and the loss by merging task vectors, with ``exemplars`` per task.

    From the table "weights" of exemplar sensitivity. With the accuracies v with task vectors, w with whole weights and
    o of the own experts, the losses are v - w and o - v. Their difference is 2v - w - o; the intervals of the three are
    added assuming independence.
    """
    from merging.study.trials.exemplar_sensitivity import OWN_EXPERTS, TASK_VECTORS, WHOLE_WEIGHTS

    rows = weights.rename(columns={"solved": "method"})
    tables = [
        sampled_accuracy(rows, *choice)
        for choice in ((TASK_VECTORS, exemplars), (WHOLE_WEIGHTS, exemplars), (OWN_EXPERTS, 0))
    ]
    if not all(len(table) for table in tables):
        return None
    (v, n), (w, _), (o, _) = (mean_accuracy(table) for table in tables)
    first, second = v.value - w.value, o.value - v.value
    half_width = float(np.linalg.norm([2 * (v.high - v.low) / 2, (w.high - w.low) / 2, (o.high - o.low) / 2]))
    altered_loss, fused_loss = (
        BoundedValue(first, first - half_width, first + half_width),
        BoundedValue(second, second, second),
    )
    return compare_estimates(altered_loss, fused_loss, describe_sample(n), unit="points")


def compare_sizes(counts: pd.DataFrame, first: str, second: str, size: int) -> Comparison | None:
    """Two methods that merge ``size`` experts, from the table "counts" of the measurement "task_counts".

    The interval is that of a paired t-test over subsets; for a single subset it comes from the number of images.
    """
    rows = counts[(counts["size"] == size) & counts["method"].isin([first, second])]
    rows = rows.assign(accuracy=rows["correct"] / rows["n"])
    rows_first, rows_second = (rows[rows["method"] == method] for method in (first, second))
    if rows_first.empty or rows_second.empty:
        return None
    if rows["subset"].nunique() == 1:
        return compare_means(rows_first, rows_second)
    means = rows.groupby(["subset", "method"])["accuracy"].mean().unstack("method").dropna()
    n = int(rows_first.groupby("subset")["n"].sum().iloc[0])
    sample = f"{len(means)} subsets, n = {n:,} images each, {REPORTING}"
    return compare_pairs(means[first].to_numpy(), means[second].to_numpy(), sample)
