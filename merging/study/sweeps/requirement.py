"""The best point of a sweep among those with a required accuracy, and how certain it is that they have it.

Accuracies are of sampled images, so a point just above the requirement may be below it on other images. Its certainty
is estimated by sampling the images of every task again, with replacement: with the draws of ``paired_scores`` where the
answers to each image are stored. Otherwise the counts suffice, since any right images have the same distribution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from merging.base.errors import ParameterError
from merging.base.text import did_you_mean, first_few
from merging.images.benchmarks.paired_scores import MOST_AT_ONCE, Correctness, resample_accuracies
from merging.images.benchmarks.resampled_tasks import DRAWS, SEED, Floats

if TYPE_CHECKING:
    import pandas as pd

IN, OUT = "in", "out"
GROUP_COLUMNS = {IN: ("in_domain", "in_low", "in_high", "n_in"), OUT: ("out_of_domain", "out_low", "out_high", "n_out")}
# word -> column of the averages; the H-score is the harmonic mean of the accuracies in and out of domain
BEST_COLUMNS = {"h": "h_score", IN: "in_domain"}
ROUNDING_TOLERANCE = 1e-12  # of sums of fractions
JUDGED_COLUMNS = ("required", "required_low", "required_high", "required_n", "meets", "certainty", "by_image")


@dataclass(frozen=True, slots=True)
class Requirement:
    """An accuracy of at least ``at_least`` (a fraction): in domain ("in"), out of domain ("out"), or of a task's key.

    Raises:
        ParameterError: ``at_least`` is not a fraction.
    """

    subject: str
    at_least: float

    def __post_init__(self) -> None:
        if not 0 <= self.at_least <= 1:  # also refuses NaN
            raise ParameterError(f"A required accuracy is a fraction in [0, 1]; got {self.at_least:g}.")


def parse_requirement(text: str, tasks: Sequence[str]) -> Requirement:
    """A requirement from text such as 'out=0.8', 'in=0.6' or 'kana=0.7'. Raises ParameterError for other text."""
    subject, _, value = (part.strip() for part in text.partition("="))
    known = [IN, OUT, *tasks]
    if subject not in known:
        raise ParameterError(
            f"{subject[:40]!r} is neither in, out nor a task of this sweep.{did_you_mean(subject, known)} "
            f"Known: {first_few(known, 24)}."
        )
    try:
        at_least = float(value)
    except ValueError:
        raise ParameterError(f"Write a requirement as out=0.8; got {text[:40]!r}.") from None
    return Requirement(subject, at_least)


def judge_points(
    rows: pd.DataFrame, averages: pd.DataFrame, requirement: Requirement, answers: Mapping[str, Correctness]
) -> pd.DataFrame:
    """``averages`` with the columns ``JUDGED_COLUMNS``.

    They are the required score, its 95 % interval, n, whether the score is high enough (meets), the share of resamples
    in which it is (certainty), and whether these are of images (by_image) or of counts. ``rows`` and ``averages`` are
    the tables of ``sweep_table`` and ``average_rows``, ``answers`` those of points whose answers are stored. A point
    without such a score (NaN) does not meet the requirement.
    """
    if requirement.subject in GROUP_COLUMNS:
        counted_rows = rows[rows["in_domain"].astype(bool) == (requirement.subject == IN)]
        required = averages[list(GROUP_COLUMNS[requirement.subject])]
    else:
        counted_rows = rows[rows["task"] == requirement.subject]
        by_point = counted_rows.drop_duplicates("point").set_index("point")
        required = by_point.reindex(averages["point"])[["accuracy", "low", "high", "n"]].set_axis(averages.index)
    table = averages.assign(**dict(zip(JUDGED_COLUMNS, required.to_numpy().T, strict=False)))
    shares = _estimate_certainties(counted_rows.drop_duplicates(["point", "task"]), requirement.at_least, answers)
    names = table["point"].astype(str)
    meets = table["required"] >= requirement.at_least - ROUNDING_TOLERANCE
    return table.assign(meets=meets, certainty=names.map(shares).astype(float), by_image=names.isin(list(answers)))


def _estimate_certainties(rows: pd.DataFrame, at_least: float, answers: Mapping[str, Correctness]) -> dict[str, float]:
    """{point: share of resamples in which the mean accuracy over the tasks of its rows is at least ``at_least``}."""
    shares: dict[str, float] = {}
    by_tasks: dict[tuple[str, ...], list[str]] = {}
    for name, group in rows.groupby("point", sort=False):
        point, columns = str(name), [group[column].tolist() for column in ("task", "correct", "n")]
        if point in answers:
            by_tasks.setdefault(tuple(columns[0]), []).append(point)
        else:
            total = np.sum([_resample_counts(*count) for count in zip(*columns, strict=True)], axis=0)
            shares[point] = float((total / len(group) >= at_least - ROUNDING_TOLERANCE).mean())
    for tasks, points in by_tasks.items():
        for start in range(0, len(points), MOST_AT_ONCE):  # many points at once, which is faster
            totals = dict.fromkeys(points[start : start + MOST_AT_ONCE], np.zeros(DRAWS))
            for task in tasks:
                draws = resample_accuracies({point: {task: answers[point][task]} for point in totals})
                totals = {point: total + draws[point][task] for point, total in totals.items()}
            for point, total in totals.items():
                shares[point] = float((total / len(tasks) >= at_least - ROUNDING_TOLERANCE).mean())
    return shares


@lru_cache(maxsize=1024)  # 80 MB at most: thousands of points have few different counts
def _resample_counts(task: str, correct: int, n: int) -> Floats:
    """The accuracy (draws,) on resamples of the n images of a task, whichever ``correct`` ones are right."""
    return resample_accuracies({"": {task: (np.arange(n) < correct).astype(np.float64)}})[""][task]


def describe_draws(table: pd.DataFrame) -> str:
    """The resamples of a ``judge_points`` table in words, such as "10,000 resamples of the images (seed 0)"."""
    subject = "the images" if table["by_image"].all() else "counts, as answers to images are missing or damaged"
    return f"{DRAWS:,} resamples of {subject} (seed {SEED})"


def is_uncertain(row: pd.Series, requirement: Requirement) -> bool:
    """Whether the requirement is within the 95 % interval of a judged point's score."""
    return bool(row["required_low"] < requirement.at_least <= row["required_high"])


def find_best_point(table: pd.DataFrame, column: str) -> tuple[str, bool]:
    """The best point of a ``judge_points`` table that meets the requirement, and True; else the nearest one, and False.

    ``column`` is a column; where it is NaN, as without tasks out of domain, the in-domain accuracy counts. Among equal
    points the first wins. In a table of averages without a requirement all points meet it.
    """
    qualified = table[table["meets"]] if "meets" in table else table
    if len(qualified):
        return str(qualified["point"].iloc[int(qualified[column].fillna(qualified["in_domain"]).argmax())]), True
    return str(table["point"].iloc[int(table["required"].fillna(-1.0).argmax())]), False


def score_name(requirement: Requirement) -> str:
    """'out of domain', 'in domain', or the task's key."""
    return {IN: "in domain", OUT: "out of domain"}.get(requirement.subject, requirement.subject)
