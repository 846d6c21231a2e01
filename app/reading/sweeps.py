"""Data of the Sweeps page: stored sweeps, their computed points, and the tables of the charts.

A sweep varies parameters of recipes (x and y are the values), weights on a line through two models (kind LINE) or in
the plane through three (kind PLANE), or the merged experts (kind SUBSETS). A point's ``line`` is the index of its
recipe, whatever the kind.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import streamlit as st

from app import page_text
from app.reading import page_data
from app.reading import samples as images_drawn
from app.reading.expert_names import expert_name
from merging.base.errors import MergingError
from merging.base.files.short_digest import short_digest
from merging.images.benchmarks.image_draws import CHOOSING
from merging.models.model_references import PRETRAINED
from merging.recipes.recipe import Recipe
from merging.study.partners.stored_subsets import collect_subsets
from merging.study.partners.subsets import MeasuredSubsets, list_few, plan_subsets
from merging.study.sweeps import sweep_plans, sweep_session, sweep_storage
from merging.study.sweeps.best_points import Answers, read_point_answers
from merging.study.sweeps.known_points import KnownPoints
from merging.study.sweeps.points import Point
from merging.study.sweeps.sweep import LINE, SUBSETS, VALUES, NamedPoint, Sweep, with_absolute_paths
from merging.study.sweeps.sweep_session import SweepSession
from merging.study.sweeps.sweep_tables import (
    PlainRow,
    average_columns,
    average_row,
    point_rows,
    sort_points,
    table_columns,
)
from merging.tasks.queue.job_kinds import SWEEP
from merging.tasks.queue.job_records import Job, name_job
from viz.figure_text import clean_text, percent, plural, span

if TYPE_CHECKING:
    import pandas as pd

    from merging.study.runs.run import Run

MIN_IDLE_RATIO = 10.0  # while points are computed: least idle time between two updates of the tables, in update times
MAX_POINTS = 40_000  # points of all sweeps in memory; a point takes a few kilobytes


@dataclass(frozen=True)
class SweepPoints:
    """A sweep with every planned point, and the computed ones by name."""

    sweep: Sweep
    planned_points: Sequence[NamedPoint]
    points: Mapping[str, Point]

    @cached_property
    def total(self) -> int:
        """The number of planned points."""
        return len({point.name for point in self.planned_points})

    @property
    def complete(self) -> bool:
        """Whether every planned point is computed."""
        return len(self.points) == self.total


@dataclass(frozen=True)
class SweepResults(SweepPoints):
    """A sweep's points on the benchmark, with their tables."""

    shown: Sequence[_ShownPoint]  # the computed ones, in the order of the tables
    averages: pd.DataFrame

    @cached_property
    def tasks(self) -> pd.DataFrame:
        """A row for each point and each task."""
        return self._make_task_table(self.shown)

    def tasks_at_same_y(self, point: str) -> pd.DataFrame:
        """The rows of ``tasks`` for points with the same value of the second axis as ``point``."""
        y = self.scores[point]["y"]
        return self._make_task_table([shown_point for shown_point in self.shown if shown_point.row["y"] == y])

    def _make_task_table(self, shown: Sequence[_ShownPoint]) -> pd.DataFrame:
        import pandas as pd

        columns = table_columns(self.sweep)
        rows = [row for one in shown for row in point_rows(self.sweep, one.planned, one.point)]
        labels = [one.row["label"] for one in shown for _ in range(one.tasks)]
        return page_text.add_titles(pd.DataFrame(rows, columns=columns)).assign(label=labels)

    @cached_property
    def computed(self) -> str:
        """The numbers of images, and the devices, in words."""
        points = self.points.values()
        devices = page_text.join_words(
            sorted({clean_text(device, 40) for device in {point.device for point in points}})
        )
        return f"n = {span({point.images for point in points})} images a point, on {devices}"

    @cached_property
    def answers(self) -> Answers:
        """The answers of the points, without those that are not stored or are damaged."""
        return read_point_answers(self.points, self.sweep.sample, page_data.benchmark())

    @cached_property
    def task_keys(self) -> list[str]:
        """The keys of the tasks, in the order of ``tasks``."""
        return list(dict.fromkeys(task for keys in dict.fromkeys(one.keys for one in self.shown) for task in keys))

    @cached_property
    def scores(self) -> dict[str, dict[str, Any]]:
        """The row of ``averages`` of each point."""
        return {one.planned.name: one.row for one in reversed(self.shown)}

    @cached_property
    def _by_name(self) -> dict[str, NamedPoint]:
        return {planned.name: planned for planned in reversed(self.planned_points)}

    @cached_property
    def names(self) -> dict[str, str]:
        """The name of each computed point in pickers."""
        return {one.planned.name: one.words for one in reversed(self.shown)}

    def find_plan(self, point: str) -> NamedPoint:
        """The plan of a point."""
        return self._by_name[point]


@dataclass(frozen=True)
class _ShownPoint:
    """A computed point for the page: its row of averages, as a tuple (``plain``) and by column (``row``).

    ``words`` is its name in pickers, ``keys`` are the keys of its tasks.
    """

    planned: NamedPoint
    point: Point
    plain: PlainRow
    row: dict[str, Any]
    words: str
    keys: tuple[str, ...]

    @property
    def tasks(self) -> int:
        """The number of its rows in the table of tasks."""
        return len(self.keys)


class _CachedSweep:
    """The cache of a sweep between two drawings of the page: its known points, their rows, and the latest results."""

    def __init__(self, points: KnownPoints) -> None:
        self.points = points
        self.ordered = sort_points(points.planned)
        self.labels: list[str] = []
        self.shown: dict[int, _ShownPoint | None] = {}  # by index in that order; None: the point has no tasks to show
        self.latest: SweepResults | None = None
        # Of ``latest``: count of changes, when it was made, and how long that took (seconds).
        self.changes = self.made_at = self.make_seconds = 0.0

    def is_too_early(self) -> bool:
        """Whether it is too early to make the results again: that may take about a tenth of the time."""
        return time.monotonic() - self.made_at < MIN_IDLE_RATIO * self.make_seconds


_cached_sweeps: OrderedDict[tuple[object, ...], _CachedSweep] = OrderedDict()  # the last used one is at the end


def sweep_results(sweep: Sweep) -> SweepResults:
    """The current results of a sweep. Raises CheckpointError if its files are missing."""
    cached = _find_cached_sweep(sweep)
    if (
        (latest := cached.latest) is not None
        and latest.sweep == sweep
        and cached.is_too_early()
        and (job := sweep_job(sweep)) is not None
        and job.is_live  # points are being computed, so that new ones may appear a little later
    ):
        return latest
    started, points, changes = time.monotonic(), cached.points.read_points(), cached.points.changes
    if latest is None or latest.sweep != sweep or cached.changes != changes:
        latest = _collect_results(sweep, cached, points)
        cached.changes = changes
        cached.latest, cached.made_at, cached.make_seconds = latest, time.monotonic(), time.monotonic() - started
    return latest


def sweep_points(sweep: Sweep) -> SweepPoints:
    """The current points of a sweep, without tables. Raises CheckpointError if its files are missing."""
    known = _find_cached_sweep(sweep).points
    return SweepPoints(sweep, known.planned, known.read_points())


def find_grid(run: Run) -> SweepResults | None:
    """The stored points over two parameters of this run's merge, if all of them are computed, with the run's own."""
    recipe = run.recipe
    for sweep in sweep_storage.list_sweeps(page_data.store()).values() if recipe else ():
        is_grid = sweep.kind == VALUES and len(sweep.axes) == 2 and len(sweep.recipes) == 1
        if is_grid and (sweep.recipes[0].steps, sweep.recipes[0].experts) == (recipe.steps, recipe.experts):
            with contextlib.suppress(MergingError):  # its files are missing
                results = sweep_results(sweep)
                if results.complete and any(one.point.recipe.steps == recipe.steps for one in results.planned_points):
                    return results
    return None


def _find_cached_sweep(sweep: Sweep) -> _CachedSweep:
    """The cache of a sweep; if all caches have too many points, the least recently used ones are dropped."""
    store, benchmark = page_data.store(), page_data.benchmark()
    key = sweep.id, benchmark.digest, store
    if (cached := _cached_sweeps.get(key)) is None:
        with st.spinner("Reading the checkpoints …"):
            planned = sweep_plans.plan_or_read(sweep, store, benchmark)
        cached = _cached_sweeps.setdefault(
            key, _CachedSweep(KnownPoints(planned, store, benchmark, sweep.sample.normalize_on(benchmark)))
        )
    with contextlib.suppress(KeyError):  # another session has dropped it meanwhile
        _cached_sweeps.move_to_end(key)
        while (
            len(_cached_sweeps) > 1
            and sum(len(other_sweep.points.planned) for other_sweep in list(_cached_sweeps.values())) > MAX_POINTS
        ):
            _cached_sweeps.popitem(last=False)
    return cached


def _collect_results(sweep: Sweep, cached: _CachedSweep, points: Mapping[str, Point]) -> SweepResults:
    import pandas as pd

    planned = cached.points.planned
    labels = [sweep_title(replace(sweep, title=""))] if sweep.through else recipe_titles(sweep)
    if labels != cached.labels:
        cached.labels, cached.shown = labels, {}
    columns, shown_points = [*average_columns(sweep), "label"], []
    for index, point_plan in enumerate(cached.ordered):
        if (point := points.get(point_plan.name)) is None:
            continue
        shown_point = cached.shown.get(index)
        if index not in cached.shown or (shown_point is not None and shown_point.point is not point):
            shown_point = cached.shown[index] = _make_shown_point(
                sweep, point_plan, point, labels[point_plan.point.line], columns
            )
        if shown_point is not None:
            shown_points.append(shown_point)
    means = pd.DataFrame([point_plan.plain for point_plan in shown_points], columns=columns)
    return SweepResults(sweep, planned, points, shown_points, means)


def _make_shown_point(
    sweep: Sweep, planned: NamedPoint, point: Point, label: str, columns: Sequence[str]
) -> _ShownPoint | None:
    """A point for the page; None if it has no task to show."""
    if not (rows := point_rows(sweep, planned, point)):
        return None
    plain = (*average_row(planned, point, rows), label)
    row = dict(zip(columns, plain, strict=True))
    return _ShownPoint(
        planned, point, plain, row, _point_in_words(sweep, row), tuple(str(task_row[0]) for task_row in rows)
    )


def list_checkpoint_doubts(sweep: Sweep) -> list[str]:
    """Possible problems of the checkpoints of a sweep, in sentences; none for a sweep from a pack, which has none."""
    if sweep_storage.find_pack(page_data.store(), sweep.id):
        return []
    models = {(recipe.pretrained, recipe.experts, recipe.architecture, recipe.activation) for recipe in sweep.recipes}
    references = sorted(
        {path for recipe in sweep.recipes for path in (recipe.pretrained, *dict(recipe.experts).values())}
    )
    files = [page_data.file_state(path) for path in references]
    return _checkpoint_doubts_cached(
        str(sorted(models)), str(files), sweep.learning_note, page_data.benchmark().digest, sweep
    )


@st.cache_data(max_entries=page_data.MAX_CACHED, show_spinner="Comparing the checkpoints …")
def _checkpoint_doubts_cached(
    models: str, files: str, learning_note: str, benchmark_digest: str, _sweep: Sweep
) -> list[str]:
    return sweep_session.list_sweep_doubts(_sweep, SweepSession(page_data.benchmark(), _sweep.sample))


def input_digests(sweep: Sweep) -> tuple[str, list[tuple[str, str]]]:
    """The inputs of the points: the benchmark's digest, and the digests of all checkpoints with their roles."""
    if sweep_storage.find_pack(page_data.store(), sweep.id):
        return page_data.benchmark().digest, []  # the checkpoints are not in the pack
    session = SweepSession(page_data.benchmark(), sweep.sample)
    pairs = [pair for recipe in sweep.recipes for pair in session.open_checkpoints(recipe).digests().items()]
    return page_data.benchmark().digest, list(dict.fromkeys(pairs))


def sweep_job(sweep: Sweep) -> Job | None:
    """The job that computes a sweep, None if the queue has none."""
    job_id = name_job(SWEEP, sweep.id)
    return next((job for job in page_data.job_queue().list_benchmark_jobs() if job.id == job_id), None)


def recipe_titles(sweep: Sweep) -> list[str]:
    """A title for each recipe of a sweep, all different, so that pickers and legends distinguish them."""
    names = [recipe.title or page_text.chain_title(recipe) for recipe in sweep.recipes]
    pairs = zip(names, sweep.recipes, strict=True)
    names = [page_text.chain_words(recipe) if names.count(name) > 1 else name for name, recipe in pairs]
    counts = [names[: index + 1].count(name) for index, name in enumerate(names)]
    numbered = zip(names, counts, strict=True)
    return [f"{clean_text(name, 50)} ({count})" if names.count(name) > 1 else name for name, count in numbered]


def model_names(sweep: Sweep, line: int = 0) -> list[str]:
    """The names of the models that a line or a plane goes through; untrusted plain text."""
    titles = dict(zip(sweep.recipes, recipe_titles(sweep), strict=True))
    return [
        titles[model] if isinstance(model, Recipe) else "Pretrained" if model == PRETRAINED else expert_name(model)
        for model in sweep.list_models(line)
    ]


def axis_labels(sweep: Sweep) -> tuple[str, ...]:
    """The label of each axis, with models named as on pages."""
    if not sweep.through:
        return sweep.labels
    first, *others = (clean_text(name, 28) for name in model_names(sweep))
    if sweep.kind == LINE:
        return (f"α from {first} (0) to {others[0]} (1)",)
    return tuple(f"{letter} toward {other}" for letter, other in zip("αβ", others, strict=True))


def sweep_label(sweep: Sweep) -> str:
    """A sweep's name in the picker; plain text, and unique."""
    return f"{clean_text(sweep_title(sweep), 90)}  ·  {sweep.id[:6]}"


def sweep_title(sweep: Sweep) -> str:
    """A sweep's own title, or one made from its varied parameters and its recipes."""
    if sweep.title:
        return sweep.title
    names = " and ".join(clean_text(name, 40) for name in recipe_titles(sweep)[:2])
    remaining = f" and {len(sweep.recipes) - 2} more" if len(sweep.recipes) > 2 else ""
    if sweep.through:
        kind = "Line" if sweep.kind == LINE else "Plane"
        return f"{kind} through {page_text.join_words([clean_text(name, 40) for name in model_names(sweep)])}"
    if sweep.kind == LINE:
        return f"From pretrained through {names}{remaining}"
    if sweep.kind == SUBSETS:
        return f"Subsets of experts, {names}"
    varied = " × ".join(label.partition(": ")[2] or label for label in sweep.labels)
    return f"{varied[:1].upper()}{varied[1:]} of {names}{remaining}"


def images_note(results: SweepResults) -> str:
    """The note under every chart: the images, their number and sampling, and the computing device."""
    sample = results.sweep.sample.normalize_on(page_data.benchmark())
    tasks = len(sample.tasks) or len(page_data.benchmark().tasks)
    images = f"at most {sample.images:,} images" if sample.images else "all images"
    sampled = f", sampled with seed {sample.seed}" if sample.images else ""
    return (
        f"{images_drawn.scored_part_of_each(sample.split).capitalize()}: {images} of each of "
        f"{plural(tasks, 'task')}{sampled}; "
        f"{results.computed}."
        f"{images_drawn.sampling_sentence(sample.split)}{_describe_differing_tasks(results.averages)}"
    )


def _describe_differing_tasks(means: pd.DataFrame) -> str:
    """A sentence if the points' averages are over different tasks and images; empty if all are over the same."""
    if means["n_in"].nunique() < 2 and means["n_out"].nunique() < 2:
        return ""
    inside, outside = (span(means[name]) for name in ("n_in", "n_out"))
    return f" Averages differ in their tasks: n = {inside} images in domain, {outside} out of domain."


def _point_in_words(sweep: Sweep, row: Mapping[str, Any]) -> str:
    """A point's name in pickers: recipe, values, score; plain text."""
    values = ", ".join(f"{row[name]:.10g}" for name in "xy" if name in row)
    score = row["in_domain"] if math.isnan(row["h_score"]) else row["h_score"]
    score_name = "in-domain" if math.isnan(row["h_score"]) else "H-score"
    names = f"{clean_text(row['label'], 60)}  ·  " if len(sweep.lines) > 1 else ""
    return f"{names}{values}  ·  {score_name} {percent(score)}"


# Subsets of experts


@st.cache_resource(max_entries=32, show_spinner=False, hash_funcs={Recipe: hash})
def plan_team(recipe: Recipe, images: int, split: str = CHOOSING, subsets: tuple[int, ...] | None = None) -> Sweep:
    """The sweep of a chain on subsets of its experts. Raises RecipeError for fewer than two experts, or too many."""
    plain = replace(with_absolute_paths(recipe, Path.cwd()), title="")
    return plan_subsets(plain, images, split=split, subsets=subsets)


def plan_few(recipe: Recipe, images: int) -> Sweep:
    """The sweep of a chain on single experts, pairs and triples."""
    return plan_team(recipe, images, subsets=tuple(list_few(len(recipe.experts))))


class StoredSubsets(NamedTuple):
    """The answers so far, and the ``key`` of tables about them: a digest of the store and of all points' names."""

    key: str
    answers: MeasuredSubsets


def read_subsets(sweep: Sweep) -> StoredSubsets:
    """What is stored of a sweep of subsets so far. Raises CheckpointError if a file is missing."""
    points = sweep_points(sweep)
    names = [point.name for point in points.planned_points], list(points.points)
    key = short_digest(json.dumps([str(page_data.store().root), sweep.id, *names]))
    return StoredSubsets(key, _collect_subsets(key, sweep, points))


@st.cache_resource(max_entries=16, show_spinner=False)
def _collect_subsets(key: str, _sweep: Sweep, _points: SweepPoints) -> MeasuredSubsets:
    store, on_benchmark = page_data.store(), page_data.benchmark()
    return collect_subsets(_sweep, store, on_benchmark, _points.planned_points, _points.points)
