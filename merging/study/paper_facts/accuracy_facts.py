"""Facts that compare accuracies of models on the same images, image by image, with their paired intervals."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from merging.base.text import plural
from merging.images.benchmarks.answers import Scored, compare_scored
from merging.images.benchmarks.paired_scores import (
    IN_DOMAIN,
    OUT_OF_DOMAIN,
    Correctness,
    average_groups,
    compare_models,
    find_interval,
    resample_accuracies,
)
from merging.study.paper_facts.comparison import PAIRED_IMAGES, Comparison, Floats, compare_pairs
from merging.study.trials.row_answers import join_rows

if TYPE_CHECKING:
    import pandas as pd

REPORTING, CHOOSING = "reporting half", "choosing half"
GROUP_COLUMNS = {"in": "in_domain", "out": "out_of_domain"}
GROUPS = {"in": IN_DOMAIN, "out": OUT_OF_DOMAIN}


def describe_sample(n: int, half: str = REPORTING) -> str:
    """The sample of a fact in words."""
    return f"n = {n:,} images, {half}"


def compare_answers(
    first: Correctness, second: Correctness, in_domain: Collection[str], over: str = "in", half: str = REPORTING
) -> Comparison:
    """The difference of two models' averages ``over`` the tasks "in" or "out" of domain; see ``compare_models``."""
    return _make_comparison(compare_models(first, second, in_domain, only=[GROUPS[over]]), over, half)


def compare_scores(first: Scored, second: Scored, in_domain: Collection[str], over: str) -> Comparison:
    """As ``compare_answers``; without the answers of both models, the interval is unknown (NaN)."""
    return _make_comparison(compare_scored(first, second, in_domain, only=[GROUPS[over]]), over, REPORTING)


def _make_comparison(rows: pd.DataFrame, over: str, half: str) -> Comparison:
    """The row of ``compare_models`` for an average; NaN if the models answer none of its tasks in common."""
    row = rows[rows["over"] == GROUPS[over]]
    numbers = (row[name].sum(min_count=1) for name in ("accuracy", "reference", "difference", "low", "high"))
    first, second, difference, low, high = (100 * float(number) for number in numbers)
    return Comparison(
        first=first, second=second, difference=difference, low=low, high=high,
        sample=describe_sample(int(row["n"].sum()), half), interval=PAIRED_IMAGES,
    )  # fmt: skip


def compare_rows(first: pd.DataFrame, second: pd.DataFrame, in_domain: Collection[str] = ()) -> Comparison:
    """The difference of two models' averages in domain, from their rows with the column "right" (``row_answers``).

    Without ``in_domain`` all tasks of the rows count as in domain.
    """
    right = join_rows(first)
    return compare_answers(right, join_rows(second), in_domain or list(right))


def compare_ranges(
    first: Mapping[float, Correctness], second: Mapping[float, Correctness], in_domain: Sequence[str], half: str
) -> Comparison:
    """The ranges of two methods' mean accuracies over the values of a parameter: the largest minus the smallest.

    ``first`` and ``second`` are {value: the answers of the method with this value}. All are resampled together. Ranges
    are larger on resamples than on the images, which the interval allows for (``find_interval``).
    """
    ranges, range_draws, n = list[float](), list[Floats](), 0
    for answers in (first, second):
        tasks = [task for task in in_domain if all(task in one for one in answers.values())]
        n = sum(len(next(iter(answers.values()))[task]) for task in tasks)
        ranges.append(float(np.ptp([np.mean([one[task].mean() for task in tasks]) for one in answers.values()])))
        draws = resample_accuracies({str(value): one for value, one in answers.items()})
        range_draws.append(np.ptp([np.mean([one[task] for task in tasks], axis=0) for one in draws.values()], axis=0))
    difference = ranges[0] - ranges[1]
    low, high = find_interval(range_draws[0] - range_draws[1], difference)
    return Comparison(
        first=100 * ranges[0], second=100 * ranges[1], difference=100 * difference, low=100 * float(low),
        high=100 * float(high), sample=describe_sample(n, half), unit="points", interval=PAIRED_IMAGES,
    )  # fmt: skip


def average_samples(rows: pd.DataFrame, method: str, exemplars: int, column: str = "method") -> Correctness:
    """{task: (n,)}: for every image the share of the samples of exemplars after which a method is right.

    ``rows`` are those of exemplar sensitivity, with the column "right"; empty if there is no such row.
    """
    selected = rows[(rows[column] == method) & (rows["exemplars"] == exemplars)]
    samples = [join_rows(of_seed) for _, of_seed in selected.groupby("seed")]
    return {task: np.mean([sample[task] for sample in samples], axis=0) for task in (samples[0] if samples else ())}


def describe_exemplars(seeds: pd.Series[int]) -> str:
    """What the interval of a mean over samples of exemplars, drawn with these seeds, is over, in words."""
    count = plural(int(seeds.nunique()), "sample")
    return f"mean of {count} of exemplars; the interval is over images only"


def compare_exemplars(accuracy: pd.DataFrame, method: str, first: int, second: int) -> Comparison | None:
    """A method with two numbers of exemplars, each the mean over its samples."""
    few, many = (average_samples(accuracy, method, exemplars) for exemplars in (first, second))
    if not few or not many:
        return None
    result = compare_answers(few, many, list(few))
    seeds = accuracy.loc[(accuracy["method"] == method) & accuracy["exemplars"].isin([first, second]), "seed"]
    return replace(result, sample=f"{result.sample}, {describe_exemplars(seeds)}")


def compare_altered(weights: pd.DataFrame, exemplars: int) -> Comparison | None:
    """The loss by altering the pretrained weights, and the loss by merging task vectors, with ``exemplars`` per task.

    ``weights`` is that table of exemplar sensitivity, with the column "right". With the accuracies v with task vectors,
    w with whole weights and o of the own experts, the losses are v - w and o - v, and their difference is 2v - w - o.
    """
    from merging.study.trials.exemplar_sensitivity import OWN_EXPERTS, TASK_VECTORS, WHOLE_WEIGHTS

    average = partial(average_samples, weights, column="solved")
    models = {
        name: average(name, count)
        for name, count in ((TASK_VECTORS, exemplars), (WHOLE_WEIGHTS, exemplars), (OWN_EXPERTS, 0))
    }
    if not all(models.values()):
        return None
    tasks = list(models[TASK_VECTORS])
    groups = {IN_DOMAIN: tasks, OUT_OF_DOMAIN: []}
    v, w, o = (float(np.mean([answers[task].mean() for task in tasks])) for answers in models.values())
    draws = (average_groups(one, groups)[IN_DOMAIN] for one in resample_accuracies(models).values())
    of_vectors, of_weights, of_experts = draws
    low, high = find_interval(2 * of_vectors - of_weights - of_experts)
    n = sum(len(models[TASK_VECTORS][task]) for task in tasks)
    seeds = weights.loc[weights["solved"].isin([TASK_VECTORS, WHOLE_WEIGHTS]) & (weights["exemplars"] == exemplars)]
    sample = f"{describe_sample(n)}, {describe_exemplars(seeds['seed'])}"
    return Comparison(
        first=100 * (v - w), second=100 * (o - v), difference=100 * (2 * v - w - o), low=100 * float(low),
        high=100 * float(high), sample=sample, unit="points", interval=PAIRED_IMAGES,
    )  # fmt: skip


def compare_sizes(counts: pd.DataFrame, first: str, second: str, size: int) -> Comparison | None:
    """Two methods that merge ``size`` experts, from the table "counts" of task counts, with the column "right".

    The interval is that of a paired t-test over subsets; for a single subset it is paired by images.
    """
    rows = counts[(counts["size"] == size) & counts["method"].isin([first, second])]
    rows = rows.assign(accuracy=rows["correct"] / rows["n"])
    rows_first, rows_second = (rows[rows["method"] == method] for method in (first, second))
    if rows_first.empty or rows_second.empty:
        return None
    if rows["subset"].nunique() == 1:
        return compare_rows(rows_first, rows_second)
    means = rows.groupby(["subset", "method"])["accuracy"].mean().unstack("method").dropna()
    n = int(rows_first.groupby("subset")["n"].sum().iloc[0])
    sample = f"{len(means)} subsets, n = {n:,} images each, {REPORTING}"
    return compare_pairs(means[first].to_numpy(), means[second].to_numpy(), sample)
