"""Facts about accuracy by the number of merged experts, and by the number of exemplars."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from merging.base.errors import LessonError
from merging.base.text import did_you_mean
from merging.teaching.fact import PERCENT, Fact

if TYPE_CHECKING:
    import pandas as pd

    from merging.teaching.lesson_context import LessonContext

TASK_COUNTS, EXEMPLARS = "task_counts", "exemplars"


def retained_accuracy(context: LessonContext, arguments: Mapping[str, Any]) -> Fact:
    """The share of the experts' accuracy that a method retains with a number of experts: a mean over stored subsets.

    The interval assumes that the errors of all subsets are fully correlated, so it is too wide rather than too narrow.
    """
    from merging.images.benchmarks.metrics import average
    from merging.study.trials.task_counts import average_counts

    measured = context.find_measurement(TASK_COUNTS)
    counts, experts = measured.table("counts"), measured.table("experts")
    rows = _select_method_rows(counts, arguments["method"])
    rows = rows[rows["size"] == arguments["experts"]]
    if rows.empty:
        sizes = sorted(set(counts["size"]))
        raise LessonError(f"experts is one of {', '.join(map(str, sizes))}; got {arguments['experts']!r}.")
    means = average_counts(rows, experts)
    value = float(means["normalized"].mean())
    rows = rows.assign(accuracy=rows["correct"] / rows["n"])
    widths = [high - low for _, low, high in (average(one) for _, one in rows.groupby("subset"))]
    expert_accuracy = float((experts["correct"] / experts["n"]).mean())
    half_width = sum(widths) / len(widths) / 2 / expert_accuracy if expert_accuracy else math.nan
    n, notes = int(means["n"].sum()), measured.notes
    source = "one subset of experts" if len(means) == 1 else f"{len(means)} subsets of experts"
    return Fact(value, PERCENT, value - half_width, value + half_width, n, str(notes["split"]), notes["seed"], source)


def exemplars(context: LessonContext, arguments: Mapping[str, Any]) -> Fact:
    """Mean in-domain accuracy of a method with n exemplars of each task: the mean over stored draws of exemplars.

    The interval is for the sampling of images, not of exemplars.
    """
    from merging.images.benchmarks.metrics import average
    from merging.images.benchmarks.paired_scores import IN_DOMAIN, average_groups, group_tasks, resample_accuracies
    from merging.study.paper_facts.accuracy_facts import average_samples
    from merging.study.trials.row_answers import join_answers

    measured = context.find_measurement(EXEMPLARS)
    table = join_answers("accuracy", measured.table)
    rows = _select_method_rows(table, arguments["method"])
    rows = rows[rows["exemplars"] == arguments["n"]]
    if rows.empty:
        numbers = sorted(set(table["exemplars"]))
        raise LessonError(f"n is one of {', '.join(map(str, numbers))}; got {arguments['n']!r}.")
    tasks = rows.groupby("task", sort=False).agg(accuracy=("accuracy", "mean"), n=("n", "first"))
    value, low, high = average(tasks)
    sample_count = rows["seed"].nunique()
    source, n = f"{sample_count} draws of exemplars", int(tasks["n"].sum())
    right = average_samples(rows, arguments["method"], arguments["n"])
    by_task = resample_accuracies({"": right})[""]
    draws = average_groups(by_task, group_tasks(by_task, right))[IN_DOMAIN]
    return Fact(value, PERCENT, low, high, n, str(measured.notes["split"]), source=source, draws=draws)


def _select_method_rows(table: pd.DataFrame, method: Any) -> pd.DataFrame:
    known = list(dict.fromkeys(table["method"]))
    if method not in known:
        near = did_you_mean(str(method), known)
        raise LessonError(f"method is one of {', '.join(known)}; got {method!r}.{near}")
    rows: pd.DataFrame = table[table["method"] == method]
    return rows
