"""Leave one out, put one in: the best subset of each size, chosen on one half of the images, reported on the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from merging.images.benchmarks.paired_scores import (
    H_SCORE,
    IN_DOMAIN,
    OUT_OF_DOMAIN,
    Correctness,
    average_groups,
    find_interval,
    resample_accuracies,
)
from merging.study.partners.subsets import MeasuredSubsets
from merging.study.sweeps.sweep_target import list_members

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

SCORES = (IN_DOMAIN, OUT_OF_DOMAIN, H_SCORE)
COLUMNS = (
    "metric", "size", "subset", "tried", "chosen", "value", "low", "high", "gap", "gap_low", "gap_high", "n",
)  # fmt: skip


def score_subsets(measured: MeasuredSubsets) -> dict[str, dict[int, float]]:
    """{score: {subset: value}} for in domain, out of domain and their harmonic mean H, as fractions.

    In domain are the tasks of all experts of the team, also of those that a subset leaves out.
    """
    if not measured.right:
        return {}
    by_task = {task: measured.stack(task, measured.right).mean(axis=1) for task in measured.tasks}
    averages = average_groups(by_task, measured.groups)
    return {name: dict(zip(measured.right, values.tolist(), strict=True)) for name, values in averages.items()}


def choose_best(measured: MeasuredSubsets) -> dict[str, dict[int, int]]:
    """{score: {size: subset}}: the best measured subset of each size; of equal ones the first."""
    best: dict[str, dict[int, int]] = {}
    for name, values in score_subsets(measured).items():
        by_size: dict[int, int] = {}
        for subset, value in values.items():
            size = subset.bit_count()
            if size not in by_size or value > values[by_size[size]]:
                by_size[size] = subset
        best[name] = dict(sorted(by_size.items()))
    return best


def list_chosen(best: Mapping[str, Mapping[int, int]]) -> list[int]:
    """The distinct subsets that ``choose_best`` chose, whose scores the reporting half has to give."""
    return sorted({subset for by_size in best.values() for subset in by_size.values()})


def best_table(measured: MeasuredSubsets, reported: MeasuredSubsets | None = None) -> pd.DataFrame:
    """A row for each score (metric) and size: the best subset (names joined by " + "), and how many were tried.

    chosen is its score on the choosing half; value with low and high is that on the reporting half, n the images of the
    latter. gap is chosen − value, how much too optimistic the choice is, with the interval for two independent samples
    of images. All are fractions, and NaN as long as they are not reported.
    """
    import pandas as pd

    best, scores = choose_best(measured), score_subsets(measured)
    sizes = [subset.bit_count() for subset in measured.right]
    chosen_draws, reported_draws = {}, {}
    if reported is not None:
        common = [subset for subset in list_chosen(best) if subset in reported.right]
        chosen_draws, reported_draws = (_draw_scores(half, common) for half in (measured, reported))
    reported_scores = {} if reported is None else score_subsets(reported)
    rows = []
    for name, by_size in best.items():
        for size, subset in by_size.items():
            chosen = scores[name][subset]
            row = [name, size, " + ".join(list_members(measured.experts, subset)), sizes.count(size), chosen]
            if reported is not None and subset in reported_draws:
                value, draws = reported_scores[name][subset], reported_draws[subset][name]
                gaps = find_interval(chosen_draws[subset][name] - np.roll(draws, 1))  # of other images: independent
                n = _count_images(reported, name)
                row += [value, *map(float, find_interval(draws)), chosen - value, *map(float, gaps), n]
            else:
                row += [np.nan] * 6 + [0]
            rows.append(row)
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _draw_scores(measured: MeasuredSubsets, subsets: list[int]) -> dict[int, dict[str, NDArray[np.float64]]]:
    """{subset: {score: (draws,)}} on resamples of the images."""
    models: dict[str, Correctness] = {str(subset): measured.right[subset] for subset in subsets}
    accuracies = resample_accuracies(models) if models else {}
    return {int(name): average_groups(by_task, measured.groups) for name, by_task in accuracies.items()}


def _count_images(measured: MeasuredSubsets, name: str) -> int:
    tasks = measured.groups.get(name) or measured.tasks
    return sum(measured.count_images(task) for task in tasks)
