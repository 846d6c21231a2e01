"""Summaries of scores: intervals, averages in and out of domain, the H-score. Importing this loads no torch."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

Z95 = 1.959963984540054  # two-sided 95 % quantile of the normal distribution
# The note beside the scores of a merge that gives one model per task, next to those of a single model.
PER_TASK = (
    "One model per task: it can only be used if the task of each image is known, so its in-domain accuracy is not "
    "comparable with that of a single model. Out of domain no model is the right one, and the figure is the mean over "
    "all of them, whose interval is wider than needed, because it is that of one model."
)
# The note for merges that use a module of the task itself in domain.
TASK_KNOWN = (
    "Per task in domain: every task has a module of its own, so the user has to say which task an image belongs to. "
    "Out of domain there is none, and the figure is the merged model's."
)
ADAPTS_ON_TEST = "† Adapted on these images: it learned, without labels, on the images that its scores are of."


def wilson(correct: float, n: int) -> tuple[float, float]:
    """The Wilson 95 % interval of a proportion, as fractions; (nan, nan) without images."""
    if n == 0:
        return math.nan, math.nan
    share, z = correct / n, Z95
    center = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, center - half), min(1.0, center + half)


def h_score(in_domain: float, out_of_domain: float) -> float:
    """Harmonic mean of the two averages; 0 if both are 0, NaN if either group is empty (LwPTV, section 5.1)."""
    if math.isnan(in_domain) or math.isnan(out_of_domain):
        return math.nan
    total = in_domain + out_of_domain
    return 2 * in_domain * out_of_domain / total if total else 0.0


@dataclass(frozen=True, slots=True)
class Summary:
    """Averages over data sets, unweighted, as fractions; NaN if a group has no data set.

    ``normalized`` is the mean over in-domain tasks of accuracy over the expert's (``normalized_tasks`` of them had an
    expert accuracy above zero). Intervals are 95 % for the average of independent proportions.
    """

    in_domain: float
    in_low: float
    in_high: float
    out_of_domain: float
    out_low: float
    out_high: float
    h_score: float
    normalized: float
    normalized_tasks: int
    tasks_in: int
    tasks_out: int
    n_in: int
    n_out: int


def summarize(
    scores: pd.DataFrame,
    in_domain: Sequence[str],
    expert_accuracy: Mapping[str, float] | None = None,
    split: str = "reporting",
) -> Summary:
    """Averages of one model's scores; a task is in domain if its expert is merged (listed in ``in_domain``)."""
    columns = (scores[name].tolist() for name in ("split", "task", "accuracy", "n"))
    rows = [(task, accuracy, n) for half, task, accuracy, n in zip(*columns, strict=True) if half == split]
    return summary_of(rows, in_domain, expert_accuracy or {})


def summary_of(
    rows: Sequence[tuple[str, float, int]], in_domain: Collection[str], reference: Mapping[str, float]
) -> Summary:
    """The summary of one (task, accuracy, n) per task; faster than ``summarize`` for many summaries.

    ``reference`` is {task: its expert's accuracy}.
    """
    inside = [row for row in rows if row[0] in in_domain]
    outside = [row for row in rows if row[0] not in in_domain]
    id_mean, id_low, id_high = _average([row[1:] for row in inside])
    ood_mean, ood_low, ood_high = _average([row[1:] for row in outside])
    ratios = [accuracy / reference[task] for task, accuracy, _ in inside if reference.get(task, 0.0) > 0]
    return Summary(
        in_domain=id_mean,
        in_low=id_low,
        in_high=id_high,
        out_of_domain=ood_mean,
        out_low=ood_low,
        out_high=ood_high,
        h_score=h_score(id_mean, ood_mean),
        normalized=float(np.mean(ratios)) if ratios else math.nan,
        normalized_tasks=len(ratios),
        tasks_in=len(inside),
        tasks_out=len(outside),
        n_in=sum(int(n) for _, _, n in inside),
        n_out=sum(int(n) for _, _, n in outside),
    )


def average(rows: pd.DataFrame) -> tuple[float, float, float]:
    """Mean of the accuracies and a 95 % interval: the proportions are independent, so their variances add.

    ``rows`` have accuracy (a fraction) and n (images).
    """
    return _average(list(zip(rows["accuracy"].tolist(), rows["n"].tolist(), strict=True)))


def _average(rows: Sequence[tuple[float, int]]) -> tuple[float, float, float]:
    """Mean and interval as ``average``, from (accuracy, n) of each row."""
    if not rows:
        return math.nan, math.nan, math.nan
    share, n = np.array(rows, np.float64).T
    # Agresti-Coull's two successes and two failures keep the variance away from zero at 0 and 100 %.
    smooth = (share * n + 2) / (n + 4)
    half = Z95 * math.sqrt(float((smooth * (1 - smooth) / (n + 4)).sum())) / len(rows)
    mean = float(share.mean())
    return mean, max(0.0, mean - half), min(1.0, mean + half)


def individual(models: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Scores of "each task with its own model" from {task: that model's scores}: one row per (task, split).

    Tasks without a model get the mean over the models, counted as the answers of one model, which makes the interval
    wider than needed.
    """
    import pandas as pd

    rows = pd.concat([table.assign(model=task) for task, table in models.items()], ignore_index=True)
    keys = [name for name in rows.columns if name not in ("model", "correct", "accuracy", "low", "high")]
    own_rows = rows[rows["task"] == rows["model"]]
    other_rows = rows[~rows["task"].isin(list(models))].groupby(keys, sort=False, as_index=False)["correct"].mean()
    scores: pd.DataFrame = pd.concat([own_rows[[*keys, "correct"]], pd.DataFrame(other_rows)], ignore_index=True)
    scores["accuracy"] = scores["correct"] / scores["n"]
    scores["correct"] = scores["correct"].round().astype("int64")
    intervals = [wilson(int(c), int(n)) for c, n in zip(scores["correct"], scores["n"], strict=True)]
    scores["low"], scores["high"] = zip(*intervals, strict=True) if intervals else ((), ())
    return scores[[name for name in rows.columns if name != "model"]]
