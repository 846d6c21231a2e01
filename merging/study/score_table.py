"""Scores of a model in one form, from any source: the benchmark, a file, or a program of the user's."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any, Self

from merging.base.errors import MergingError
from merging.base.files.tables import Columns, Table
from merging.base.text import first_few, printable
from merging.images.benchmarks.metrics import h_score, wilson

MEASURED, GIVEN, PROGRAM = "measured", "given", "program"  # sources: the benchmark, a file of the user's, a program
MEAN, INSIDE, OUTSIDE, H_SCORE = "mean", "in domain", "out of domain", "H-score"
COLUMNS = ("task", "metric", "value", "split", "n", "better")
PROPORTION_METRICS = ("accuracy", "accuracy_norm", "exact_match")  # metrics that are shares of examples
DIRECTIONS = ("", "higher", "lower")
# Limits of scores, and of characters of a text and of an origin.
MAX_ROWS, MAX_TEXT_CHARACTERS, MAX_ORIGIN_CHARACTERS = 10_000, 200, 80
MAX_EXAMPLES = 10**12  # limit of n of a score


@dataclass(frozen=True, slots=True)
class Score:
    """The value of a metric on a task; ``n`` is the number of examples, None if unknown.

    ``better`` is "higher" or "lower", empty if unknown.
    """

    task: str
    metric: str
    value: float
    split: str = ""
    n: int | None = None
    better: str = ""

    @property
    def proportion(self) -> bool:
        """Whether the value is a share of examples; metrics such as F1 are not. After the metric may come a filter."""
        return self.metric.split()[0] in PROPORTION_METRICS and 0 <= self.value <= 1

    @property
    def interval(self) -> tuple[float, float]:
        """The Wilson 95 % interval of a proportion whose n is known; NaN for all other scores."""
        return wilson(round(self.value * self.n), self.n) if self.proportion and self.n else (math.nan, math.nan)


@dataclass(frozen=True, slots=True)
class ScoreTable:
    """The scores of one model; ``origin`` names the device, the file or the program that they come from.

    ``source`` is "measured" (by the benchmark), "given" (in a file) or "program".
    """

    source: str
    origin: str
    scores: tuple[Score, ...]

    @classmethod
    def from_table(cls, table: Table, source: str, origin: str) -> Self:
        """The scores in a table of ``columns``, or in a table of accuracies of the benchmark."""
        columns: dict[str, Any] = {str(name): list(values) for name, values in table.items()}
        values = columns.get("value") or columns["accuracy"]
        metrics, better = ([word] * len(values) for word in ("accuracy", ""))
        rows = zip(
            columns["task"], columns.get("metric") or metrics, values, columns["split"], columns["n"],
            columns.get("better") or better, strict=True,
        )  # fmt: skip
        with_counts = ((*row[:4], None if math.isnan(row[4]) else int(row[4]), row[5]) for row in rows)
        return cls(source, origin, tuple(Score(*row) for row in with_counts))

    @property
    def columns(self) -> Columns:
        """The table that is stored, a row for each score; unknown n are NaN."""
        columns = {name: [getattr(score, name) for score in self.scores] for name in COLUMNS}
        return Columns(columns | {"n": [math.nan if n is None else float(n) for n in columns["n"]]})

    def rows(self, experts: Collection[str]) -> list[dict[str, Any]]:
        """A row for each score, as charts need it; unknown n, low and high are NaN.

        A task is in domain if one of the ``experts`` has its name.
        """
        return [
            {
                **asdict(score), "n": score.n or math.nan, **dict(zip(("low", "high"), score.interval, strict=True)),
                "proportion": score.proportion, "in_domain": score.task in experts, "source": self.source,
                "origin": self.origin,
            }
            for score in self.scores
        ]  # fmt: skip

    def means(self, experts: Collection[str]) -> tuple[str, dict[str, tuple[float, int]]]:
        """The proportion that most tasks have, and {unweighted mean over tasks: (value, number of tasks)}.

        Only a task's first split counts. A task is in domain if an expert has its name; without such tasks there is a
        single mean, and without a proportion none.
        """
        by_metric: dict[str, dict[str, float]] = {}
        for score in self.scores:
            if score.proportion:
                by_metric.setdefault(score.metric, {}).setdefault(score.task, score.value)
        metric = max(by_metric, key=lambda name: len(by_metric[name]), default="")
        values = by_metric.get(metric, {})
        inside, outside = (
            [values[task] for task in values if (task in experts) == is_inside] for is_inside in (True, False)
        )
        means = {INSIDE if inside else MEAN: fmean(inside or outside)} if values else {}
        if inside and outside:
            means |= {OUTSIDE: fmean(outside), H_SCORE: h_score(fmean(inside), fmean(outside))}
        counts = {INSIDE: len(inside), OUTSIDE: len(outside)}
        return metric, {name: (value, counts.get(name, len(values))) for name, value in means.items()}


def check_scores(rows: Iterable[tuple[str, Mapping[str, Any]]], source: str, origin: str) -> ScoreTable:
    """The table of rows (position, score); an error names the position. Raises MergingError if a score is wrong."""
    scores = tuple(_check_score(row, position) for position, row in rows)
    if not scores or len(scores) > MAX_ROWS:
        raise MergingError(f"{origin} holds {len(scores):,} scores; from 1 to {MAX_ROWS:,} are expected.")
    counts = Counter((score.task, score.split, score.metric) for score in scores)
    if duplicates := sorted({" ".join(names) for names, count in counts.items() if count > 1}):
        raise MergingError(f"{origin} has {first_few(duplicates)} twice.")
    return ScoreTable(source, origin, scores)


def read_score_table(table: Table, source: str, origin: str) -> ScoreTable | None:
    """The scores in a stored table, which another program may have written; None if one of them is wrong."""
    name = printable(origin, MAX_ORIGIN_CHARACTERS)
    rows = (dict(zip(COLUMNS, row, strict=True)) for row in zip(*(table[column] for column in COLUMNS), strict=True))
    try:
        return check_scores(((name, {**row, "n": _read_count(row["n"])}) for row in rows), source, name)
    except MergingError:
        return None


def _read_count(n: object) -> object:
    return None if isinstance(n, float) and math.isnan(n) else n


def _check_score(row: Mapping[str, Any], position: str) -> Score:
    """A checked score. Raises MergingError with its position if it is wrong."""
    keys = ("task", "metric", "split", "better")
    texts = {key: printable(str(row.get(key) or "").strip(), MAX_TEXT_CHARACTERS) for key in keys}
    if not texts["task"] or not texts["metric"]:
        raise MergingError(f"{position}: a score has a task and a metric.")
    try:
        value = float(row["value"])
        n = int(row["n"]) if row.get("n") not in {None, ""} else None
        if isinstance(row.get("n"), float) and n != row["n"]:
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise MergingError(f"{position}: value is a number, and n a whole number or empty.") from None
    if not math.isfinite(value) or (n is not None and not 1 <= n <= MAX_EXAMPLES):
        raise MergingError(
            f"{position}: value is finite and n from 1 to {MAX_EXAMPLES:,}; got {value} and {printable(str(n), 40)}."
        )
    if texts["metric"].startswith("accuracy") and not 0 <= value <= 1:
        raise MergingError(f"{position}: an accuracy is from 0 to 1; got {value}.")
    if texts["better"] not in DIRECTIONS:
        raise MergingError(f"{position}: better is higher or lower; got {texts['better']!r}.")
    return Score(texts["task"], texts["metric"], value, texts["split"], n, texts["better"])
