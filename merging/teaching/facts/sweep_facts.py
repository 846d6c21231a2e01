"""Facts about stored sweeps: a recipe's scores at one value, and the best point, with or without a bound."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from merging.base.errors import LessonError, StoreError
from merging.base.text import did_you_mean
from merging.teaching.fact import PERCENT, POINTS, Fact
from merging.teaching.facts.score_facts import average_draws

if TYPE_CHECKING:
    import pandas as pd

    from merging.study.sweeps.best_points import Answers
    from merging.study.sweeps.sweep import Sweep
    from merging.teaching.lesson_context import LessonContext

SCORE_COLUMNS = {
    "in": ("in_domain", "in_low", "in_high", "n_in"),
    "out": ("out_of_domain", "out_low", "out_high", "n_out"),
}
SCORE_COLUMN_BY = {"h": "h_score", "in": "in_domain", "out": "out_of_domain"}
VALUE, SCORE, REPORTED, FALLEN, POINTS_OF, METHOD, CERTAINTY, LEAD, TIES = POINT_PARTS = (
    "value", "score", "reported", "fallen", "points", "method", "certainty", "lead", "ties",
)  # fmt: skip


class StoredSweep(NamedTuple):
    """A sweep with the tables of its stored points: ``rows`` by point and task, ``averages`` by point; and answers.

    In both, the column ``line`` is the number of the point's recipe, and ``x`` its value.
    """

    sweep: Sweep
    rows: pd.DataFrame
    averages: pd.DataFrame
    answers: Answers


def swept_score(context: LessonContext, arguments: Mapping[str, Any]) -> Fact:
    """The score, over in, out, h or a data set, of a sweep's first recipe or an alias's recipe at one value."""
    stored = _read_stored_sweep(context, str(arguments["sweep"]))
    averages = _select_recipe_points(context, stored, arguments)
    at = arguments["at"]
    if isinstance(at, bool) or not isinstance(at, (int, float)):
        raise LessonError(f"at is a value of the axis; got {at!r}.")
    rows = averages[(averages["x"] - float(at)).abs() < 1e-9]
    if rows.empty:
        values = ", ".join(f"{value:g}" for value in sorted(set(averages["x"])))
        raise StoreError(f"The sweep has no point at {at:g}; it has {values}.")
    return _read_score(context, stored, rows.iloc[0], str(arguments["over"]))


def best_point(context: LessonContext, arguments: Mapping[str, Any]) -> Fact:
    """The best point of a sweep ``by`` h, in or out; with a bound (``subject``, ``least``), the best that meets it.

    ``of`` selects a property of the point: its "value" on the axis, its "score" on the sweep's images, the "reported"
    score of its run on the reporting half, the change from "score" to "reported" ("fallen"), its "method", the number
    of "points" compared, the "certainty" that it meets the bound, its "lead" over the next best, or the number of
    "ties", the points that cannot be distinguished from it. ``over`` is the kind of score, by default ``by``.
    """
    from merging.study.sweeps.requirement import Requirement, describe_draws, find_best_point, judge_points

    stored, by = _read_stored_sweep(context, str(arguments["sweep"])), str(arguments["by"])
    if by not in SCORE_COLUMN_BY:
        raise LessonError(f"by is one of {', '.join(SCORE_COLUMN_BY)}; got {by!r}.")
    averages = _select_recipe_points(context, stored, arguments) if "run" in arguments else stored.averages
    if "subject" in arguments or "least" in arguments:
        requirement = Requirement(str(arguments.get("subject", "out")), float(arguments.get("least", 0)))
        averages = judge_points(stored.rows, averages, requirement, stored.answers)
    point, is_met = find_best_point(averages, SCORE_COLUMN_BY[by])
    if not is_met:
        raise StoreError("No point of the sweep meets the bound.")
    row = averages[averages["point"] == point].iloc[0]
    part, source = str(arguments.get("of", SCORE)), f"the best of {len(averages)} points"
    if part not in POINT_PARTS:
        raise LessonError(f"of is one of {', '.join(POINT_PARTS)}; got {part!r}.{did_you_mean(part, POINT_PARTS)}")
    if part in (SCORE, REPORTED, FALLEN):
        return _make_point_fact(context, stored, row, str(arguments.get("over", by)), part, source)
    if part == METHOD:
        return Fact(source=source, name=stored.sweep.recipes[int(row["line"])].title or "the recipe")
    if part == CERTAINTY:
        source += f", {describe_draws(averages)}" if "by_image" in averages else ""
        return Fact(float(row.get("certainty", math.nan)), PERCENT, seed=0, source=source, digits=0)
    if part in (LEAD, TIES):
        return _compare_best(stored, averages, point, SCORE_COLUMN_BY[by], part)
    number = float(row["x"] if part == VALUE else len(averages))
    return Fact(number, source=source, digits=_count_digits(number))


def _compare_best(stored: StoredSweep, averages: pd.DataFrame, point: str, column: str, part: str) -> Fact:
    """The lead of the best point over the next, or the number of ties. Raises StoreError if points are not compared."""
    from merging.images.benchmarks.resampled_tasks import SEED
    from merging.study.sweeps.best_points import compare_with_best

    comparison = compare_with_best(stored.sweep, stored.rows, averages, point, column, stored.answers)
    if not comparison.others:
        raise StoreError(comparison.reason)
    n, half = int(stored.rows.loc[stored.rows["point"] == point, "n"].sum()), str(averages["split"].iloc[0])
    if part == TIES:
        return Fact(len(comparison.ties), n=n, half=half, seed=SEED, source=f"{len(averages)} points", digits=0)
    lead = comparison.others[0]
    return Fact(lead.lead, POINTS, lead.lead_low, lead.lead_high, n, half, SEED, "family-wise interval")


def _make_point_fact(
    context: LessonContext, stored: StoredSweep, row: pd.Series, over: str, part: str, source: str
) -> Fact:
    """A point's score on the images of its sweep or on the reporting half, or the difference of the two."""
    chosen = _read_score(context, stored, row, over)
    if part == SCORE:
        return chosen
    reported = _read_reported_score(context, stored, row, over)
    if part == REPORTED:
        return reported
    change = reported.value - chosen.value
    down = math.hypot(reported.value - reported.low, chosen.high - chosen.value)
    up = math.hypot(reported.high - reported.value, chosen.value - chosen.low)
    source = f"{source}, on new images"
    return Fact(change, POINTS, change - down, change + up, reported.n, reported.half, source=source)


def _read_stored_sweep(context: LessonContext, alias: str) -> StoredSweep:
    """A sweep with its stored points. Raises StoreError if the sweep is not stored, or none of its points is."""
    return context.compute_once(("swept", alias), lambda: _read_fresh_sweep(context, alias))


def _read_fresh_sweep(context: LessonContext, alias: str) -> StoredSweep:
    from merging.study.sweeps.best_points import read_point_answers
    from merging.study.sweeps.known_points import KnownPoints
    from merging.study.sweeps.sweep_session import plan_sweep
    from merging.study.sweeps.sweep_tables import average_rows, sweep_table

    sweep = context.find_sweep(alias)
    if sweep is None:
        axes = context.lesson.runs[alias]["sweep"]
        raise StoreError(f"There is no sweep over {axes} on this machine. Start one on Sweeps.")
    planned, sample = plan_sweep(sweep, context.benchmark), sweep.sample.normalize_on(context.benchmark)
    points = KnownPoints(planned, context.store, context.benchmark, sample).read_points()
    if not points:
        raise StoreError("None of the sweep's points is stored. Open it on Sweeps and continue it.")
    rows = sweep_table(sweep, planned, points)
    return StoredSweep(sweep, rows, average_rows(rows), read_point_answers(points, sample, context.benchmark))


def _select_recipe_points(context: LessonContext, stored: StoredSweep, arguments: Mapping[str, Any]) -> pd.DataFrame:
    """The points of the recipe that the alias ``run`` names; without it, those of the first recipe."""
    number = 0
    if alias := arguments.get("run"):
        digest = context.build_recipe(str(alias)).chain_digest
        chains = [recipe.chain_digest for recipe in stored.sweep.recipes]
        if digest not in chains:
            raise LessonError(f"The sweep has no recipe that is the run {str(alias)!r}.")
        number = chains.index(digest)
    return stored.averages[stored.averages["line"] == number]


def _read_score(context: LessonContext, stored: StoredSweep, row: pd.Series, over: str) -> Fact:
    """One score of a point, on the images of its sweep."""
    from merging.images.benchmarks.metrics import h_score

    half, source = str(row["split"]), f"{stored.sweep.recipes[int(row['line'])].title} at {row['x']:g}"
    seed = stored.sweep.seed if stored.sweep.images else None
    point, rows = str(row["point"]), stored.rows[stored.rows["point"] == row["point"]]
    answers = stored.answers.get(point) and {task: stored.answers[point][task] for task in rows["task"]}
    draws = average_draws(context, point, answers, set(rows["task"][rows["in_domain"]]), over)
    if over == "h":
        ends = (h_score(row["in_low"], row["out_low"]), h_score(row["in_high"], row["out_high"]))
        n = int(row["n_in"] + row["n_out"])
        return Fact(float(row["h_score"]), PERCENT, *ends, n, half, seed, source, draws=draws)
    if over in SCORE_COLUMNS:
        value, low, high, n = (row[name] for name in SCORE_COLUMNS[over])
        return Fact(float(value), PERCENT, float(low), float(high), int(n), half, seed, source, draws=draws)
    context.list_tasks(over, ())  # raises LessonError if ``over`` is unknown
    task_row = rows[rows["task"] == over].iloc[0]
    ends = float(task_row["low"]), float(task_row["high"])
    return Fact(float(task_row["accuracy"]), PERCENT, *ends, int(task_row["n"]), half, seed, source, draws=draws)


def _read_reported_score(context: LessonContext, stored: StoredSweep, row: pd.Series, over: str) -> Fact:
    """The score of the point's run on the reporting half. Raises StoreError if the run is not stored."""
    from merging.images.benchmarks.metrics import average, summarize
    from merging.teaching.facts.score_facts import SPLIT

    run = context.store.find(str(row["run"])) if row["run"] else None
    if run is None or run.scores is None or run.benchmark != context.benchmark.digest:
        raise StoreError("The point is not stored as a run. On Sweeps, choose it and open it as a run.")
    scores = run.scores[run.scores["split"] == SPLIT]
    if over == "h":
        from merging.images.benchmarks.metrics import h_score

        means = summarize(scores, run.experts)
        ends = (h_score(means.in_low, means.out_low), h_score(means.in_high, means.out_high))
        return Fact(means.h_score, PERCENT, *ends, means.n_in + means.n_out, SPLIT, source=run.name)
    rows = scores[scores["task"].isin(context.list_tasks(over, run.experts))]
    value, low, high = average(rows)
    return Fact(value, PERCENT, low, high, int(rows["n"].sum()), SPLIT, source=run.name)


def _count_digits(value: float) -> int:
    """The number of digits after the point in the shortest form of a value."""
    return len(f"{value:g}".partition(".")[2])
