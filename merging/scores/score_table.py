"""Scores of a model in one form, whatever their source: the benchmark, a file, or a program of the user's."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from merging.benchmarks.metrics import h_score, wilson
from merging.errors import MergingError
from merging.files.tables import Columns, Table
from merging.text import first_few, printable

MEASURED, GIVEN, PROGRAM = "measured", "given", "program"
COLUMNS = ("task", "metric", "value", "split", "n", "better")
PROPORTIONS = ("accuracy", "accuracy_norm", "exact_match")  # metrics that are shares of examples
BETTER = ("", "higher", "lower")
MOST_ROWS, MOST_TEXT = 10_000, 200
MOST_EXAMPLES = 10**12  # n of a score


@dataclass(frozen=True, slots=True)
class Score:
    """A metric of a task, on ``n`` examples if that is known.

    ``better`` is "higher" or "lower", empty if that was not said.
    """

    task: str
    metric: str
    value: float
    split: str = ""
    n: int | None = None
    better: str = ""

    @property
    def proportion(self) -> bool:
        """Whether it is a share of examples; sums of parts, such as F1, are none."""
        return self.metric.split()[0] in PROPORTIONS and 0 <= self.value <= 1

    @property
    def interval(self) -> tuple[float, float]:
        """The Wilson 95 % interval of a proportion whose n is known; NaN for all other scores."""
        return wilson(round(self.value * self.n), self.n) if self.proportion and self.n else (math.nan, math.nan)


@dataclass(frozen=True, slots=True)
class ScoreSummary:
    """Means over tasks, unweighted, as fractions; NaN without a task. In domain is a task called like an expert.

    ``metric`` is what they are of: one that all these tasks have.
    """

    metric: str
    in_domain: float
    out_of_domain: float
    h_score: float
    tasks_in: int
    tasks_out: int


@dataclass(frozen=True, slots=True)
class ScoreTable:
    """The scores of one model; ``origin`` names the device, the file or the program that they are from.

    ``source`` is "measured" (by the benchmark), "given" (in a file) or "program".
    """

    source: str
    origin: str
    scores: tuple[Score, ...]

    @classmethod
    def from_table(cls, table: Table, source: str, origin: str) -> Self:
        """The scores that ``columns`` gave, or the accuracies of the benchmark."""
        named: dict[str, Any] = {str(name): values for name, values in table.items()}
        if "accuracy" in named:
            named |= {"value": named["accuracy"], "metric": ["accuracy"] * len(named["accuracy"])}
        blank = [""] * len(named["value"])
        rows = zip(*(list(named.get(name, blank)) for name in COLUMNS), strict=True)
        return cls(source, origin, tuple(
            Score(task, metric, float(value), split, None if math.isnan(n) else int(n), better)
            for task, metric, value, split, n, better in rows
        ))  # fmt: skip

    @property
    def columns(self) -> Columns:
        """The table that is stored, a row for each score; n is NaN where it is not known."""
        rows = [
            (one.task, one.metric, one.value, one.split, math.nan if one.n is None else float(one.n), one.better)
            for one in self.scores
        ]
        return Columns.of_rows(COLUMNS, rows)

    def rows(self, experts: Collection[str]) -> list[dict[str, Any]]:
        """A row for each score as charts take it; low and high are NaN where a score has no interval.

        In domain is a task that is called like one of the ``experts``.
        """
        return [
            {
                "task": one.task, "split": one.split, "metric": one.metric, "value": one.value,
                "n": math.nan if one.n is None else one.n, **dict(zip(("low", "high"), one.interval, strict=True)),
                "better": one.better, "proportion": one.proportion, "in_domain": one.task in experts,
                "source": self.source, "origin": self.origin,
            }
            for one in self.scores
        ]  # fmt: skip

    def summarize(self, experts: Collection[str]) -> ScoreSummary | None:
        """Averages of the proportion that most tasks have, a task's first split; None if no score is a proportion."""
        by_metric: dict[str, dict[str, float]] = {}
        for score in self.scores:
            if score.proportion:
                by_metric.setdefault(score.metric, {}).setdefault(score.task, score.value)
        if not by_metric:
            return None
        metric = max(by_metric, key=lambda name: len(by_metric[name]))
        inside = [value for task, value in by_metric[metric].items() if task in experts]
        outside = [value for task, value in by_metric[metric].items() if task not in experts]
        means = _mean(inside), _mean(outside)
        return ScoreSummary(metric, *means, h_score(*means), len(inside), len(outside))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def check_scores(rows: Iterable[tuple[str, Mapping[str, Any]]], source: str, origin: str) -> ScoreTable:
    """The table of rows, each with its position, which an error names. Raises MergingError."""
    scores = tuple(_check_score(row, where) for where, row in rows)
    if not scores or len(scores) > MOST_ROWS:
        raise MergingError(f"{origin} holds {len(scores):,} scores; from 1 to {MOST_ROWS:,} are expected.")
    counts = Counter((score.task, score.split, score.metric) for score in scores)
    if twice := sorted({" ".join(of) for of, count in counts.items() if count > 1}):
        raise MergingError(f"{origin} gives {first_few(twice)} twice.")
    return ScoreTable(source, origin, scores)


def _check_score(row: Mapping[str, Any], where: str) -> Score:
    """A checked score. Raises MergingError that says where it stands."""
    keys = ("task", "metric", "split", "better")
    texts = {key: printable(str(row.get(key) or "").strip(), MOST_TEXT) for key in keys}
    if not texts["task"] or not texts["metric"]:
        raise MergingError(f"{where}: a score has a task and a metric.")
    try:
        value = float(row["value"])
        n = int(row["n"]) if row.get("n") not in {None, ""} else None
        if isinstance(row.get("n"), float) and n != row["n"]:
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise MergingError(f"{where}: value is a number, and n a whole number or empty.") from None
    if not math.isfinite(value) or (n is not None and not 1 <= n <= MOST_EXAMPLES):
        raise MergingError(
            f"{where}: value is finite and n from 1 to {MOST_EXAMPLES:,}; got {value} and {printable(str(n), 40)}."
        )
    if texts["metric"].startswith("accuracy") and not 0 <= value <= 1:
        raise MergingError(f"{where}: an accuracy is from 0 to 1; got {value}.")
    if texts["better"] not in BETTER:
        raise MergingError(f"{where}: better is higher or lower; got {texts['better']!r}.")
    return Score(texts["task"], texts["metric"], value, texts["split"], n, texts["better"])
