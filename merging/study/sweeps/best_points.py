"""The best point of a sweep against its other points, all of which are scored on the same images."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from merging.base.errors import StoreError
from merging.base.text import first_few
from merging.images.benchmarks.paired_scores import H_SCORE, IN_DOMAIN, OUT_OF_DOMAIN, Correctness, compare_with_one
from merging.study.sweeps.points import Point, PointSample, SampledBenchmark
from merging.study.sweeps.sweep import LINE, VALUES, Sweep

if TYPE_CHECKING:
    import pandas as pd

    from merging.images.benchmarks.benchmark import Benchmark

AVERAGES = {"h_score": H_SCORE, "in_domain": IN_DOMAIN, "out_of_domain": OUT_OF_DOMAIN}  # column -> average
Answers = Mapping[str, Correctness]  # {point: which images it answers right}


@dataclass(frozen=True, slots=True)
class PointLead:
    """The lead of the best point: its score minus that of another ``point``, with the family-wise interval; fractions.

    ``is_tie``: the interval holds zero, so that the point cannot be distinguished from the best.
    """

    point: str
    lead: float
    lead_low: float
    lead_high: float
    is_tie: bool

    def __str__(self) -> str:
        lead, low, high = (100 * value for value in (self.lead, self.lead_low, self.lead_high))
        return f"{lead:.1f} points ({low:.1f} to {high:.1f})".replace("-", "−")


@dataclass(frozen=True, slots=True)
class BestComparison:
    """The best point by a ``column`` of the averages, compared with the ``others``, from the second best to the worst.

    ``default`` is the point with the default values of the axes, empty if there is none. ``ties`` are the points that
    cannot be distinguished from the best. Without comparison, ``reason`` is a sentence.
    """

    best: str
    column: str
    value: float
    default: str
    others: tuple[PointLead, ...]
    ties: tuple[str, ...]
    reason: str
    others_name: str

    def in_words(self, names: Mapping[str, str]) -> str:
        """Sentences with the ``names`` of points."""
        score = "by H-score" if self.column == "h_score" else AVERAGES[self.column]
        best = f"{names[self.best]}{' (the default)' if self.best == self.default else ''}"
        text = f"{best} is best {score}, {100 * self.value:.1f} %"
        if not self.others:
            return f"{text}. {self.reason}"
        ties = f"all {len(self.others)} {self.others_name} can be distinguished from it"
        if self.ties:
            ties = f"{len(self.ties)} of {len(self.others)} {self.others_name} cannot be distinguished from it"
            ties += f" ({first_few((names[point] for point in self.ties), 8)})"
        kinds = {self.others[0].point: "the next best"}
        kinds[self.default] = "the next best, the default" if self.default in kinds else "the default"
        leads = (
            f"{other} better than {kinds[other.point]} ({names[other.point]})"
            for other in self.others
            if other.point in kinds
        )
        return f"{text}; {ties}. It is {' and '.join(leads)}. The 95 % intervals hold for all these points together."


def read_point_answers(points: Mapping[str, Point], sample: PointSample, benchmark: Benchmark) -> Answers:
    """The answers of points with this sample, without those that are not stored or are damaged."""
    sampled = SampledBenchmark.from_benchmark(benchmark, sample.normalize_on(benchmark))
    answers = {}
    for name, point in points.items():
        with contextlib.suppress(StoreError):
            if (correctness := point.read_correctness(sampled)) is not None:
                answers[name] = correctness
    return answers


def name_points(averages: pd.DataFrame, titles: Sequence[str]) -> dict[str, str]:
    """{point: its values as text}, after the title of its recipe if there are several."""
    columns = [averages[name].tolist() for name in ("point", "line", *(axis for axis in "xy" if axis in averages))]
    return {
        str(point): (f"{titles[line]} at " if len(titles) > 1 else "") + " × ".join(f"{value:g}" for value in values)
        for point, line, *values in reversed(list(zip(*columns, strict=True)))
    }


def compare_with_best(
    sweep: Sweep, rows: pd.DataFrame, averages: pd.DataFrame, best: str, column: str, answers: Answers
) -> BestComparison:
    """The best point against the other points; of a ``judge_points`` table, against those that meet the requirement.

    ``rows`` and ``averages`` are the tables of the sweep, ``column`` is one of ``AVERAGES``. If no point has this
    score, as the H-score without tasks out of domain, the in-domain accuracy is compared.
    """
    column = "in_domain" if averages[column].isna().all() else column
    row = averages[averages["point"] == best].iloc[0]
    has_defaults = (averages["line"] == row["line"]) & (
        sweep.kind == VALUES or (sweep.kind == LINE and not sweep.through)
    )
    for axis, bound in zip("xy", sweep.bounds, strict=False):
        has_defaults &= (averages[axis] - float("nan" if bound.default is None else bound.default)).abs() < 1e-9
    default = str(next(iter(averages.loc[has_defaults, "point"]), ""))
    candidates, others_name = averages, "other points"
    if "meets" in averages:
        candidates, others_name = averages[averages["meets"]], "other points that meet the bound"
    names = list(dict.fromkeys(candidates["point"].astype(str)))
    others: list[PointLead] = []
    if not (reason := _find_obstacle(rows, names, best, answers)):
        of_best = rows[rows["point"] == best].drop_duplicates("task")
        models = {name: {task: answers[name][task] for task in of_best["task"]} for name in names}
        inside = of_best.loc[of_best["in_domain"], "task"].tolist()
        leads = compare_with_one(models, best, inside, AVERAGES[column])
        others = [PointLead(*lead[:-1], not lead[-1]) for lead in leads]
    ties = tuple(other.point for other in others if other.is_tie)
    return BestComparison(best, column, float(row[column]), default, tuple(others), ties, reason, others_name)


def _find_obstacle(rows: pd.DataFrame, names: Sequence[str], best: str, answers: Answers) -> str:
    """A sentence on why the points ``names`` cannot be compared; empty if they can."""
    if best not in names:
        return "No point meets the bound."
    if len(names) < 2:
        return "There is no other point to compare it with."
    if missing := sum(name not in answers for name in names):
        return (
            "Whether others can be distinguished from it is unknown, since the answers to images of "
            f"{missing:,} of {len(names):,} points are not stored or are damaged."
        )
    by_point = rows[rows["point"].isin(names)].groupby("point")
    if len({frozenset(zip(group["task"], group["in_domain"], strict=True)) for _, group in by_point}) > 1:
        return "Averages over different data sets are not compared."
    return ""
