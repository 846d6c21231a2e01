"""Points of sweeps: the scores of one model on one sample of the benchmark, each a small folder with hashes.

The name of a point depends on everything that its numbers depend on, so a stale point is never used, and a point that
two sweeps share is computed once. A sweep that stops leaves only complete points. A damaged point counts as absent.

A point has the same bytes on every machine, so its time and number of threads are not in it. The times of the last
points are in a file next to the store's folder.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from merging.base.errors import ParameterError, StoreError
from merging.base.files import records
from merging.base.files.short_digest import short_digest
from merging.base.files.tables import SCORES, Columns, Table
from merging.base.text import did_you_mean
from merging.images.benchmarks.answers import ANSWERS, PREDICTED, pack_numbers, unpack_numbers
from merging.images.benchmarks.benchmark import EXEMPLARS, SPLITS, Benchmark
from merging.images.benchmarks.paired_scores import Correctness
from merging.images.benchmarks.referenced_images import Images, select_images
from merging.study.runs.run import Run, name_provenance
from merging.study.runs.run_store import Store
from merging.study.score_table import MEASURED, PROGRAM, ScoreTable, read_score_table
from merging.tasks.results import Result, ResultKind, Results

if TYPE_CHECKING:
    import pandas as pd

    from merging.engine.evaluation.evaluate import Evaluation

FACTS, FOLDER, VERSION = "point.json", "points", 1
KIND = ResultKind("point", FOLDER, FACTS, "Go on with the sweep to compute it again.", table=SCORES)
TIMES_FILE_NAME = "{}-times.jsonl"  # next to the folder of the store with this name
THREADS_KEY = "threads"  # a fact about the machine that computed a point
MAX_TIMES_READ = 60  # the last lines of the file of times
MAX_TIMES_BYTES = 1 << 16  # file size above which older lines are dropped
SCORE_COLUMNS = ("task", "title", "split", "classes", "correct", "n", "accuracy", "low", "high")  # of scores
PREDICTED_COLUMN = "predicted"  # of the scores: the predicted classes of a task's images, packed as text
Identity = Sequence[Any]  # plain data that identifies a model


@dataclass(frozen=True, slots=True)
class PointSample:
    """The images of a point's scores: at most ``images`` of every task (0: all), sampled with ``seed``.

    ``tasks`` are keys; none means every task but those ``without``, which the normal form does not have.
    """

    split: str = SPLITS[0]
    images: int = 0
    seed: int = 0
    tasks: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.split not in SPLITS:
            raise ParameterError(
                f"A sweep's split is one of {', '.join(SPLITS)}; got {self.split!r}.{did_you_mean(self.split, SPLITS)}"
            )
        if self.images < 0 or self.seed < 0:
            raise ParameterError("A sweep's images and seed are whole numbers of at least 0 (0 images: all of them).")

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        """The sample from its fields as plain data."""
        return cls(str(plain["split"]), int(plain["images"]), int(plain["seed"]), tuple(map(str, plain["tasks"])))

    def normalize_on(self, benchmark: Benchmark) -> PointSample:
        """The sample in normal form: ``images`` and ``seed`` are 0 if it has all images, ``tasks`` () if it has all."""
        keys = self.tasks or tuple(task.key for task in benchmark.tasks if task.key not in self.without)
        for key in keys:
            benchmark.require_split(key, self.split)
        tasks = keys if self.tasks or len(keys) < len(benchmark.tasks) else ()
        largest = max((benchmark.count_images(key, self.split) for key in keys), default=0)
        is_sampled = 0 < self.images < largest
        return PointSample(self.split, self.images if is_sampled else 0, self.seed if is_sampled else 0, tasks)


@dataclass(frozen=True)
class SampledBenchmark(Benchmark):
    """A benchmark with a seeded sample of each task's images, which stay in memory."""

    sample: PointSample = field(kw_only=True)
    _cached: dict[tuple[str, str], tuple[Images, NDArray[np.int64]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _labels: dict[str, NDArray[np.int64]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def from_benchmark(cls, benchmark: Benchmark, sample: PointSample) -> Self:
        """``benchmark`` with the images of a sample."""
        return cls(**{f.name: getattr(benchmark, f.name) for f in fields(Benchmark)}, sample=sample)

    def load_images(self, key: str, split: str) -> tuple[Images, NDArray[np.int64]]:
        """The sampled images (n, s, s, 3) and labels (n,) of a task; exemplars are not sampled but whole."""
        if split == EXEMPLARS:
            return super().load_images(key, split)
        if (key, split) not in self._cached:
            images, labels = super().load_images(key, split)
            if (indices := self._sample_indices(len(labels))) is not None:
                images, labels = select_images(images, indices), labels[indices]
            self._cached[key, split] = images, labels
        return self._cached[key, split]

    def sample_labels(self, key: str) -> NDArray[np.int64]:
        """The labels (n,) of the sampled images of a task; ``load_labels`` gives those of the whole split."""
        if key not in self._labels:
            labels = self.load_labels(key, self.sample.split)
            indices = self._sample_indices(len(labels))
            self._labels[key] = labels if indices is None else labels[indices]
        return self._labels[key]

    def _sample_indices(self, n: int) -> NDArray[np.int64] | None:
        """The sorted indices of the sampled images among n; None for all."""
        if not 0 < self.sample.images < n:
            return None
        indices: NDArray[np.int64] = np.sort(
            np.random.default_rng(self.sample.seed).permutation(n)[: self.sample.images]
        )
        return indices

    def count_images(self, key: str, split: str) -> int:
        """The number of sampled images of a task."""
        images = super().count_images(key, split)
        return min(images, self.sample.images) if self.sample.images and split != EXEMPLARS else images


@dataclass(frozen=True)
class Point:
    """The table of scores of one model on one sample, or of those that a ``program`` printed.

    ``seconds`` is time by phase on ``device``; only new points have it. ``notes`` is further plain data, such as the
    position of a merge in a plane. ``versions`` are those of the programs that the numbers depend on.
    """

    name: str
    table: Table
    device: str
    provenance: str  # as that of a run
    seconds: Mapping[str, float] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    program: str = ""

    @cached_property
    def score_table(self) -> ScoreTable:
        """The scores in the form that is common to all sources."""
        source, origin = (PROGRAM, self.program) if self.program else (MEASURED, self.device)
        return ScoreTable.from_table(self.table, source, origin)

    def to_plain(self) -> dict[str, Any]:
        """The point as plain data, without notes; numbers are exact."""
        columns = {str(name): np.asarray(values) for name, values in self.table.items()}
        facts = {name: getattr(self, name) for name in ("name", "device", "provenance", "seconds", "versions")}
        return {**facts, SCORES: {name: [values.dtype.str, values.tolist()] for name, values in columns.items()}}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        """The point that ``to_plain`` wrote."""
        columns = {
            name: np.array(values, dtype=object if kind == "|O" else kind)
            for name, (kind, values) in plain[SCORES].items()
        }
        facts = {name: plain[name] for name in ("name", "device", "provenance", "seconds", "versions")}
        return cls(table=Columns(columns), **facts)

    @cached_property
    def scores(self) -> pd.DataFrame:
        """The table as a DataFrame, made on first use, since that takes longer than reading the file."""
        return self.table.frame() if isinstance(self.table, Columns) else self.table

    def read_correctness(self, benchmark: SampledBenchmark) -> Correctness | None:
        """{task: (n,)}, see ``SplitAnswers.correctness``, on this sample; None if its predictions are not stored.

        Raises:
            StoreError: the predictions are damaged, or are of another sample.
        """
        if PREDICTED_COLUMN not in self.table:
            return None
        correctness = {}
        for task, n, packed in _zip_columns(self.table, "task", "n", PREDICTED_COLUMN):
            labels = benchmark.sample_labels(task)
            if len(labels) != n:
                raise StoreError(f"Point {self.name} has {n:,} images of {task}; its sample has {len(labels):,}.")
            correctness[task] = (unpack_numbers(packed, PREDICTED, n) == labels).mean(axis=0)
        return correctness

    @cached_property
    def images(self) -> int:
        """The number of evaluated images."""
        return int(self.table["n"].sum())

    @cached_property
    def rows(self) -> tuple[tuple[Any, ...], ...]:
        """The columns ``SCORE_COLUMNS`` of the scores, row by row; much faster than rows of a DataFrame."""
        return tuple(_zip_columns(self.table, *SCORE_COLUMNS))


def add_predictions(evaluation: Evaluation) -> pd.DataFrame:
    """The scores of an evaluation, with the predicted classes of every image as a column.

    Raises:
        StoreError: the evaluation has scores without answers.
    """
    packed = {(one.task, one.split): pack_numbers(one.predicted, PREDICTED) for one in evaluation.answers}
    return _assign_predictions(evaluation.scores, packed, "An evaluation")


def _assign_predictions(scores: pd.DataFrame, packed: Mapping[tuple[str, str], str], what: str) -> pd.DataFrame:
    keys = list(_zip_columns(scores, "task", "split"))
    if missing := [f"{task} ({split})" for task, split in keys if (task, split) not in packed]:
        raise StoreError(f"{what} has scores but no answers for {', '.join(missing)}.")
    return scores.assign(**{PREDICTED_COLUMN: [packed[key] for key in keys]})


def name_point(identity: Identity, benchmark: Benchmark, sample: PointSample) -> str:
    """The name of the point of a model on a sample, as twelve hexadecimal digits."""
    images = [sample.split, sample.images, sample.seed, list(sample.tasks)]
    return short_digest(json.dumps([VERSION, list(identity), benchmark.digest, images], allow_nan=False))


def identify_merge(run_id: str) -> Identity:
    """The identity of the merge that the run with this id stores, or would store."""
    return ("run", run_id)


def find_scores_of_merge(store: Store, run_id: str, benchmark: Benchmark, sample: PointSample) -> Point | None:
    """The stored scores of a merge, by the id of its run, as a point or in the run; None if there are none."""
    name = name_point(identify_merge(run_id), benchmark, sample)
    return find_point(store, name) or read_point_of_run(store, run_id, name, benchmark, sample)


def point_results(store: Store) -> Results[Point]:
    """The points of a store and of its libraries, which are read-only folders of precomputed results."""
    return store.results(KIND, _read_point)


def points_folder(store: Store) -> Path:
    """The folder of the points that this machine computed."""
    return store.root / FOLDER


def find_point(store: Store, name: str) -> Point | None:
    """The stored point, or None; one of this machine comes before a precomputed one."""
    return point_results(store).find(name)


def _read_point(result: Result) -> Point | None:
    facts = result.facts
    if facts["name"] != result.path.name:
        return None
    optional_facts = {name: facts.get(name, {}) for name in ("notes", "versions")}
    provenance = name_provenance(result)
    table: Table = result.columns(SCORES)
    program = str(facts.get(PROGRAM, ""))
    if program or "metric" in table:  # scores that a program printed; those of the benchmark have no metrics
        if (scores := read_score_table(table, PROGRAM, program)) is None:
            return None
        table, program = scores.columns, scores.origin
    return Point(result.path.name, table, facts["device"], provenance, program=program, **optional_facts)


def read_point_of_run(store: Store, run_id: str, name: str, benchmark: Benchmark, sample: PointSample) -> Point | None:
    """A point from the scores of a stored run, if the sample is all images of a split; None otherwise."""
    if sample.images or not run_id:
        return None
    for run in store.list_copies(run_id):
        if run.benchmark == benchmark.digest and run.scores is not None:
            rows = run.scores[run.scores["split"] == sample.split]
            if sample.tasks:
                rows = rows[rows["task"].isin(list(sample.tasks))]
            rows = _add_run_predictions(rows.reset_index(drop=True), run)
            return Point(name, rows, run.device, run.provenance, versions=run.versions)
    return None


def _add_run_predictions(scores: pd.DataFrame, run: Run) -> pd.DataFrame:
    """Rows of a run's scores with ``PREDICTED_COLUMN`` from its answers, unless these are not stored.

    Raises:
        StoreError: the run has scores without answers.
    """
    if ANSWERS not in run.result.schemas:
        return scores
    table = run.plain_table(ANSWERS)
    packed = {(task, split): text for task, split, text in _zip_columns(table, "task", "split", PREDICTED_COLUMN)}
    return _assign_predictions(scores, packed, f"Run {run.id}")


def _zip_columns(table: Table, *names: str) -> Iterator[tuple[Any, ...]]:
    return zip(*(table[name].tolist() for name in names), strict=True)


def write_point(store: Store, point: Point, about: Mapping[str, Any]) -> None:
    """Store a point with the plain data ``about`` it, and add its time to the times of points.

    Raises:
        StoreError: the disk cannot be written to.
    """
    reproducible = {name: value for name, value in about.items() if name != THREADS_KEY}
    # Writing the table puts its schema in the place of the empty SCORES.
    facts = {**reproducible, "name": point.name, "device": point.device, SCORES: {}, "versions": dict(point.versions)}
    point_results(store).write(point.name, facts, {SCORES: point.table}, what=f"Point {point.name} of the sweep")
    if point.seconds:
        _note_time(store, {**about, "device": point.device, "seconds": dict(point.seconds)})


def times_file(store: Store) -> Path:
    """The file with the times of points, next to the folder of the store."""
    root = store.root.absolute()
    return root.with_name(TIMES_FILE_NAME.format(root.name))


def _note_time(store: Store, facts: Mapping[str, Any]) -> None:
    """Add a line to the times. A failure is ignored, since only estimates use them."""
    path = times_file(store)
    with contextlib.suppress(OSError):
        if path.is_file() and path.stat().st_size > MAX_TIMES_BYTES:
            records.write_text(
                path, "".join(f"{json.dumps(earlier_facts)}\n" for earlier_facts in read_latest_times(store))
            )
        with path.open("a+b") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
            start = b"" if file.read(1) in {b"", b"\n"} else b"\n"  # a full disk has cut off the last line
            file.write(start + json.dumps(facts).encode() + b"\n")


def read_latest_times(store: Store) -> list[dict[str, Any]]:
    """Facts about the points that were computed last, with their device and their seconds by phase, for estimates."""
    lines = []
    with contextlib.suppress(OSError):
        for line in times_file(store).read_bytes().splitlines()[-MAX_TIMES_READ:]:
            with contextlib.suppress(ValueError):  # a line that a full disk cut off
                lines.append(json.loads(line))
    return [facts for facts in lines if isinstance(facts, dict)]
