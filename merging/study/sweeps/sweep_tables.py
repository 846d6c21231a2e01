"""The estimated cost of a sweep, and the tables of its stored points."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from merging.base.devices import choose_device, describe_device
from merging.images.benchmarks.benchmark import SPLITS, Benchmark
from merging.images.benchmarks.metrics import summary_of
from merging.recipes.recipe import Recipe
from merging.study.runs.estimate import ADAPTING, EVALUATING, MERGING, estimate_run
from merging.study.runs.run import Run
from merging.study.runs.run_store import Store
from merging.study.score_table import MEAN
from merging.study.sweeps import points
from merging.study.sweeps.known_points import list_absent
from merging.study.sweeps.point_losses import LOSS, LOSS_COLUMNS, LOSS_ERROR, average_losses
from merging.study.sweeps.points import Point
from merging.study.sweeps.sweep import NamedPoint, Sweep
from merging.study.sweeps.sweep_session import SweepSession, drop_repeated, plan_sweep
from merging.tasks.context import QUIET

if TYPE_CHECKING:
    import pandas as pd

STARTUP_SECONDS = 4.0  # seconds before the first point begins: loading, reading digests
COMBINING_SECONDS = 0.1  # estimated seconds for a weighted sum; used until a point has its time
AVERAGE_COLUMNS = ["in_domain", "in_low", "in_high", "out_of_domain", "out_low", "out_high", "h_score"]
PlainRow = tuple[Any, ...]  # the cells of one row of a table, in the order of its columns
COUNT_COLUMNS = ["tasks_in", "tasks_out", "n_in", "n_out"]


@dataclass(frozen=True, slots=True)
class SweepCost:
    """The cost of a sweep: all points, stored points, and ``seconds`` for the missing ones, ``seconds_per_point`` on
    average.

    ``known``: the seconds come from earlier points on this machine, and those of merges from its runs.
    """

    points: int
    stored: int
    seconds: float
    seconds_per_point: float
    known: bool


def estimate_cost(
    sweep: Sweep,
    store: Store,
    benchmark: Benchmark,
    planned: Sequence[NamedPoint] | None = None,
    device: str = "auto",
) -> SweepCost:
    """The cost of the sweep on a device of this machine; ``planned`` is its plan, computed if it is None."""
    planned = drop_repeated(plan_sweep(sweep, benchmark) if planned is None else planned)
    session = SweepSession(benchmark, sweep.sample, QUIET.on_device(device))
    device_name = describe_device(choose_device(device))
    missing = list_absent(planned, store, benchmark, session.sample)
    if not missing:
        return SweepCost(len(planned), len(planned), 0.0, 0.0, True)
    images = _count_images(session)
    earlier_facts = [facts for facts in points.read_latest_times(store) if facts.get("device") == device_name]
    runs = store.list_runs()
    seconds, is_known = 0.0, True
    for line, recipe in enumerate(sweep.recipes):
        seconds_each, has_times = _seconds_per_point(session, recipe, sweep.has_losses, images, earlier_facts, runs)
        is_known &= has_times
        seconds += seconds_each * sum(point.point.line == line for point in missing)
    merges = {recipe for point in missing for recipe in point.point.merged_recipes} if sweep.has_losses else ()
    for recipe in merges:
        estimate = estimate_run(session.open_checkpoints(recipe), session.sampled, runs, session.context.device)
        is_known &= estimate.is_from_own_runs
        seconds += estimate.phases[MERGING]
    return SweepCost(
        len(planned), len(planned) - len(missing), STARTUP_SECONDS + seconds, seconds / len(missing), is_known
    )


def estimate_point(session: SweepSession, recipe: Recipe, store: Store) -> tuple[float, bool]:
    """Seconds for one merge and its evaluation on the session's device, and whether they come from earlier points."""
    device = describe_device(choose_device(session.context.device))
    facts = [facts for facts in points.read_latest_times(store) if facts.get("device") == device]
    return _seconds_per_point(session, recipe, False, _count_images(session), facts, store.list_runs())


def _count_images(session: SweepSession) -> int:
    keys = session.sample.tasks or tuple(task.key for task in session.benchmark.tasks)
    return sum(session.sampled.count_images(key, session.sample.split) for key in keys)


def _seconds_per_point(
    session: SweepSession,
    recipe: Recipe,
    combines_weights: bool,
    images: int,
    earlier_facts: Sequence[Mapping[str, Any]],
    runs: Sequence[Run],
) -> tuple[float, bool]:
    """Seconds for one point, and whether they come from earlier points.

    ``combines_weights``: points on lines and in planes are weighted sums of models; their merges are not counted here.
    """
    benchmark, chain = session.sampled, [step.key for _, step in recipe.stages]
    rates, merges = [], []
    for facts in earlier_facts:
        try:
            rates.append(float(facts["seconds"][EVALUATING]) / int(facts["images"]))
            # "weights": whether the earlier point combined the weights of models instead of merging them
            if bool(facts["weights"]) == combines_weights and (combines_weights or facts["chain"] == chain):
                merges.append(float(facts["seconds"][MERGING]))
        except (KeyError, TypeError, ValueError, ZeroDivisionError):
            continue
    estimated = estimate_run(session.open_checkpoints(recipe), benchmark, runs, session.context.device).phases
    count = sum(benchmark.count_images(task.key, split) for task in benchmark.tasks for split in SPLITS)
    evaluating = statistics.median(rates) * images if rates else estimated[EVALUATING] * images / max(count, 1)
    merging = (
        statistics.median(merges)
        if merges
        else COMBINING_SECONDS
        if combines_weights
        else estimated[MERGING] + estimated[ADAPTING]
    )
    return merging + evaluating, bool(rates and merges)


def sweep_table(sweep: Sweep, planned: Sequence[NamedPoint], stored_points: Mapping[str, Point]) -> pd.DataFrame:
    """A row for each stored point and each task, in the order of the axes; the values are the columns x and y.

    line is the number of the recipe, in_domain whether the task's expert was merged. If the sweep varies the number of
    experts, tasks of experts that a point leaves out are in neither domain, and have no row.
    """
    import pandas as pd

    rows: list[PlainRow] = []
    for planned_point in sort_points(planned):
        if (point := stored_points.get(planned_point.name)) is not None:
            rows += point_rows(sweep, planned_point, point)
    return pd.DataFrame(rows, columns=table_columns(sweep))


def table_columns(sweep: Sweep) -> list[str]:
    """The columns of ``sweep_table``."""
    losses = (LOSS, LOSS_ERROR) if sweep.has_losses else ()
    return [*points.SCORE_COLUMNS, "line", "point", "run", "device", *_value_columns(sweep), *losses, "in_domain"]


def sort_points(planned: Sequence[NamedPoint]) -> list[NamedPoint]:
    """The points of a plan that have values, in the order of ``sweep_table``."""
    return sorted(
        (planned_point for planned_point in planned if planned_point.point.values),
        key=lambda planned_point: (planned_point.point.line, planned_point.point.values),
    )


def point_rows(sweep: Sweep, planned_point: NamedPoint, point: Point) -> list[PlainRow]:
    """The rows of ``sweep_table`` of one point, as plain rows."""
    line, losses = planned_point.point.line, [()] * len(point.rows)
    merged_experts = _list_experts(planned_point)
    all_experts = {name for name, _ in sweep.recipes[line].experts}
    if sweep.has_losses:
        losses = list(zip(*(point.table[name].tolist() for name in (LOSS, LOSS_ERROR)), strict=True))
        merged_experts = sweep.list_experts(line)
        all_experts = {name for recipe in sweep.recipes for name, _ in recipe.experts}
    identity = (
        line,
        planned_point.name,
        planned_point.run_id,
        point.device,
        *planned_point.point.values,
    )
    return [
        (*scores, *identity, *loss, scores[0] in merged_experts)
        for scores, loss in zip(point.rows, losses, strict=True)
        if scores[0] in merged_experts or scores[0] not in all_experts
    ]


def score_rows(planned: Sequence[NamedPoint], stored_points: Mapping[str, Point]) -> list[dict[str, Any]]:
    """A row for each score of each stored point, from any source; points are in the order of the axes.

    line is the number of the recipe, x and y are the varied values; the other cells are those of ``ScoreTable.rows``.
    """
    stored = (
        (planned_point, stored_points[planned_point.name])
        for planned_point in sort_points(planned)
        if planned_point.name in stored_points
    )
    return [
        _identity_cells(planned_point) | row
        for planned_point, point in stored
        for row in point.score_table.rows(_list_experts(planned_point))
    ]


def score_means(planned: Sequence[NamedPoint], stored_points: Mapping[str, Point]) -> list[dict[str, Any]]:
    """A row for each mean over the tasks of a point, of the proportion that most of its tasks have.

    Means in and out of domain exist if a task has the name of an expert of the recipe; otherwise there is one mean.
    """
    rows = []
    for planned_point in sort_points(planned):
        if (point := stored_points.get(planned_point.name)) is not None:
            metric, means = point.score_table.means(_list_experts(planned_point))
            rows += [
                {**_identity_cells(planned_point), "mean": name, "metric": metric, "value": value, "tasks": tasks}
                for name, (value, tasks) in means.items()
                if tasks > 1 or name != MEAN
            ]
    return rows


def _identity_cells(planned_point: NamedPoint) -> dict[str, Any]:
    values = dict(zip("xy", planned_point.point.values, strict=False))
    return {"line": planned_point.point.line, **values, "point": planned_point.name, "run": planned_point.run_id}


def _list_experts(planned_point: NamedPoint) -> set[str]:
    return {name for name, _ in planned_point.point.recipe.experts}


def average_columns(sweep: Sweep) -> list[str]:
    """The columns of ``average_rows``."""
    losses = LOSS_COLUMNS if sweep.has_losses else ()
    identity = ("line", *_value_columns(sweep), "point", "run", "split", "device")
    return [*identity, *AVERAGE_COLUMNS, *COUNT_COLUMNS, *losses]


def average_row(planned_point: NamedPoint, point: Point, rows: Sequence[PlainRow]) -> PlainRow:
    """The row of ``average_rows`` of one point, from its rows of ``sweep_table``."""
    task, split, accuracy, n = (points.SCORE_COLUMNS.index(name) for name in ("task", "split", "accuracy", "n"))
    summary = summary_of(
        [(row[task], row[accuracy], row[n]) for row in rows],
        {row[task] for row in rows if row[-1]},  # the last column is in_domain
        {},  # no reference accuracies
    )
    identity = (
        planned_point.point.line,
        *planned_point.point.values,
        planned_point.name,
        planned_point.run_id,
        rows[0][split],
        point.device,
    )
    # The last columns are the loss and its error, and in_domain.
    losses = () if planned_point.point.terms is None else average_losses((row[-1], *row[-3:-1]) for row in rows)
    return (*identity, *(getattr(summary, name) for name in (*AVERAGE_COLUMNS, *COUNT_COLUMNS)), *losses)


def _value_columns(sweep: Sweep) -> str:
    """The columns of the values, as a text with one letter for each: "x" or "xy"."""
    return "xy"[: len(sweep.axes)]


def average_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """A row for each point of ``sweep_table``: means in and out of domain with intervals, H-score, counts, losses."""
    import pandas as pd

    columns = ["line", *(name for name in "xy" if name in rows), "point", "run", "split", "device"]
    loss_columns = [name for name in (LOSS, LOSS_ERROR) if name in rows]
    values = [rows[name].tolist() for name in (*columns, "task", "accuracy", "n", "in_domain", *loss_columns)]
    task_columns = 4 + len(loss_columns)
    groups: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    for row in zip(*values, strict=True):
        groups.setdefault(row[:-task_columns], []).append(row[-task_columns:])  # by point
    averages = []
    for identity, tasks in groups.items():
        summary = summary_of([task[:3] for task in tasks], {task[0] for task in tasks if task[3]}, {})
        losses = average_losses(task[3:] for task in tasks) if loss_columns else ()
        averages.append((*identity, *(getattr(summary, name) for name in (*AVERAGE_COLUMNS, *COUNT_COLUMNS)), *losses))
    columns += [*AVERAGE_COLUMNS, *COUNT_COLUMNS, *(LOSS_COLUMNS if loss_columns else ())]
    return pd.DataFrame(averages, columns=columns)
