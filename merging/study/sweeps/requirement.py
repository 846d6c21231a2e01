"""The best point of a sweep among those with a required accuracy, and how certain it is that they have it.

Accuracies are of sampled images, so a point just above the requirement may be below it on other images.
``estimate_certainty`` samples the images of every task again, with replacement. As an image is either right or wrong,
the stored counts suffice: the number of right images among n is binomial.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from merging.base.errors import ParameterError
from merging.base.text import did_you_mean, first_few

if TYPE_CHECKING:
    import pandas as pd

IN, OUT = "in", "out"
GROUP_COLUMNS = {IN: ("in_domain", "in_low", "in_high", "n_in"), OUT: ("out_of_domain", "out_low", "out_high", "n_out")}
# word -> column of the averages; the H-score is the harmonic mean of the accuracies in and out of domain
BEST_COLUMNS = {"h": "h_score", IN: "in_domain"}
RESAMPLES, SEED = 2000, 0
ROUNDING_TOLERANCE = 1e-12  # of sums of fractions
JUDGED_COLUMNS = ("required", "required_low", "required_high", "required_n", "meets", "certainty")


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


def judge_points(rows: pd.DataFrame, averages: pd.DataFrame, requirement: Requirement) -> pd.DataFrame:
    """``averages`` with the columns ``JUDGED_COLUMNS``: the required score, its 95 % interval, n, meets, certainty.

    ``rows`` and ``averages`` are the tables of ``sweep_table`` and ``average_rows``. meets says whether the score is
    high enough, certainty is the share of resamples in which it is. A point without such a score (NaN) does not meet
    the requirement.
    """
    if requirement.subject in GROUP_COLUMNS:
        counted_rows = rows[rows["in_domain"].astype(bool) == (requirement.subject == IN)]
        required = averages[list(GROUP_COLUMNS[requirement.subject])]
    else:
        counted_rows = rows[rows["task"] == requirement.subject]
        by_point = counted_rows.drop_duplicates("point").set_index("point")
        required = by_point.reindex(averages["point"])[["accuracy", "low", "high", "n"]].set_axis(averages.index)
    table = averages.assign(**dict(zip(JUDGED_COLUMNS, required.to_numpy().T, strict=False)))
    counts = {
        str(point): (group["correct"].tolist(), group["n"].tolist())
        for point, group in counted_rows.drop_duplicates(["point", "task"]).groupby("point", sort=False)
    }
    shares = [
        estimate_certainty(*counts[point], requirement.at_least) if point in counts else math.nan
        for point in table["point"].astype(str)
    ]
    return table.assign(meets=table["required"] >= requirement.at_least - ROUNDING_TOLERANCE, certainty=shares)


def estimate_certainty(
    correct: Sequence[int], n: Sequence[int], at_least: float, draws: int = RESAMPLES, seed: int = SEED
) -> float:
    """The share of bootstrap resamples in which the mean accuracy over tasks is at least ``at_least``.

    ``correct`` of ``n`` images of each task are right. The resamples of a point depend only on its own counts.
    """
    return _share_of_resamples(tuple(sorted(zip(correct, n, strict=True))), at_least, draws, seed)


@lru_cache(maxsize=20_000)  # while a sweep grows, only its new points are computed
def _share_of_resamples(counts: tuple[tuple[int, int], ...], at_least: float, draws: int, seed: int) -> float:
    accuracy = np.zeros(draws)
    for number, (right, images) in enumerate(counts):
        accuracy += _resample_accuracy(right, images, number, draws, seed)
    return float((accuracy / len(counts) >= at_least - ROUNDING_TOLERANCE).mean())


@lru_cache(maxsize=4096)  # 64 MB at most: thousands of points have few different counts
def _resample_accuracy(right: int, images: int, number: int, draws: int, seed: int) -> NDArray[np.float64]:
    """The accuracy (draws,) in every resample of ``images`` images of the task with this ``number`` in its point."""
    return np.random.default_rng([seed, number]).binomial(images, right / images, draws) / images


def is_uncertain(row: pd.Series, requirement: Requirement) -> bool:
    """Whether the requirement is within the 95 % interval of a judged point's score."""
    return bool(row["required_low"] < requirement.at_least <= row["required_high"])


def find_best_point(table: pd.DataFrame, column: str) -> tuple[str, bool]:
    """The best point of a ``judge_points`` table that meets the requirement, and True; else the nearest one, and False.

    ``column`` is a column; where it is NaN, as in planes, whose points have no accuracy out of domain, the in-domain
    accuracy counts. Among equal points the first
    wins. In a table of averages without a requirement all points meet it.
    """
    qualified = table[table["meets"]] if "meets" in table else table
    if len(qualified):
        return str(qualified["point"].iloc[int(qualified[column].fillna(qualified["in_domain"]).argmax())]), True
    return str(table["point"].iloc[int(table["required"].fillna(-1.0).argmax())]), False


def score_name(requirement: Requirement) -> str:
    """'out of domain', 'in domain', or the task's key."""
    return {IN: "in domain", OUT: "out of domain"}.get(requirement.subject, requirement.subject)
