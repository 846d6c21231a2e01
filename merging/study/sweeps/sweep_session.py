"""Computes sweeps point by point; what points share stays in memory and is computed once."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from merging.base import devices
from merging.base.errors import CheckpointError, MergingError, Paused, WorkersGone
from merging.base.free_memory import free_memory
from merging.base.text import size_text
from merging.base.threads import limit_to_one_thread
from merging.engine import run as engine
from merging.engine.evaluation.evaluate import evaluate, evaluate_per_task
from merging.engine.modules.modules import Modules
from merging.engine.outputs import MERGED
from merging.images.benchmarks.benchmark import Benchmark
from merging.models.checkpoint import Checkpoint, MappingCheckpoint
from merging.models.formats.files_on_workers import digest_for_request
from merging.models.formats.model_sources import open_checkpoint
from merging.models.model_references import PRETRAINED, expert_key
from merging.recipes.recipe import Recipe
from merging.study.runs import opened_recipe
from merging.study.runs.captured_files import CapturedFiles
from merging.study.runs.estimate import EVALUATING, MERGING, in_memory_bytes
from merging.study.runs.opened_recipe import OpenedRecipe
from merging.study.runs.run import THIS_MACHINE
from merging.study.runs.run_facts import hardware_facts, versions
from merging.study.runs.run_store import Store
from merging.study.sweeps import points
from merging.study.sweeps.known_points import KnownPoints
from merging.study.sweeps.point_computation import STAGES, PointComputation, compute_points
from merging.study.sweeps.points import Identity, Point, PointSample, SampledBenchmark
from merging.study.sweeps.sweep import NamedPoint, Sweep, SweepPoint
from merging.study.sweeps.weighted_sum import CombinedCheckpoint, fit_coefficients
from merging.tasks.context import QUIET, Context
from merging.tasks.workers.pools import open_workers
from merging.tasks.workers.workers import Workers

EVERYTHING = (0, 1)


@dataclass(frozen=True, slots=True)
class SweepOutcome:
    """How a sweep ended: stored points, points in all, and whether it was paused."""

    stored: int
    points: int
    paused: bool


@dataclass
class SweepSession:
    """What the points of one sweep share: open checkpoints, exemplars, images, heads, the merged end of a line."""

    benchmark: Benchmark
    sample: PointSample
    context: Context = QUIET
    named: NamedPoint | None = None  # the point that a worker is about to compute
    _opened: dict[tuple[str, str, str], Checkpoint] = field(default_factory=dict)
    _same: dict[tuple[Any, ...], OpenedRecipe] = field(default_factory=dict)  # by the files that are opened
    _data: dict[tuple[Any, ...], CapturedFiles] = field(default_factory=dict)  # files of data, likewise
    _named: dict[tuple[Any, ...], dict[str, str]] = field(default_factory=dict)  # digests, likewise
    _exemplars: dict[tuple[int, int], Any] = field(default_factory=dict)
    _line: tuple[Recipe, Checkpoint, tuple[str, ...]] | None = None  # its warnings go to every point of the line

    def __post_init__(self) -> None:
        self.sample = self.sample.normalize_on(self.benchmark)
        self.drawn = SampledBenchmark.of_benchmark(self.benchmark, self.sample)

    def open_checkpoints(self, recipe: Recipe) -> OpenedRecipe:
        """The checkpoints of a recipe; each file is opened once, and recipes that differ in their steps share them."""
        key = _file_key(recipe)
        if key not in self._same or any(method.content for method in recipe.methods):
            pretrained = self._checkpoint(recipe.pretrained, "pretrained")
            experts = {name: self._checkpoint(reference, name, pretrained) for name, reference in recipe.experts}
            if key not in self._data:
                self._data[key] = CapturedFiles.open(recipe, None)
            opened = opened_recipe.with_checkpoints(recipe, pretrained, experts, self.benchmark)
            self._same[key] = replace(opened, captured_files=self._data[key])
        return replace(self._same[key], recipe=recipe)

    def _digests(self, opened: OpenedRecipe) -> dict[str, str]:
        """The digests of the files of a recipe, as they were when they were opened."""
        key = _file_key(opened.recipe)
        if key not in self._named:
            self._named[key] = opened.digests()
        return self._named[key]

    def _checkpoint(self, reference: str, name: str, like: Checkpoint | None = None) -> Checkpoint:
        key = reference, name, "" if like is None else like.label
        if key not in self._opened:
            self._opened[key] = open_checkpoint(reference, name, like=like)
        return self._opened[key]

    def plan_sweep(self, sweep: Sweep) -> list[NamedPoint]:
        """Every point of a sweep with its name.

        Raises:
            CheckpointError: a checkpoint is missing or damaged. TaskError: the benchmark does not fit the models.
        """
        for recipe in sweep.recipes:
            if reason := self.benchmark.misfit(self.open_checkpoints(recipe).pretrained):
                raise MergingError(f"These models cannot be evaluated on the benchmark: {reason}")
        for key in sweep.sample.tasks:
            self.benchmark.task(key)
        return [self.plan(place) for place in sweep.points]

    def plan(self, place: SweepPoint) -> NamedPoint:
        """The point with its name and its run's id. Reads each checkpoint that this process has not read yet."""
        opened = self.open_checkpoints(place.recipe)
        digests = self._digests(opened)
        run_id = opened.run_id(digests)
        identity = _point_identity(place, digests, run_id)
        name = points.name_point(identity, self.benchmark, self.sample)
        return NamedPoint(place, name, run_id if identity[0] == "run" and place.values else "")

    def request(self, planned: NamedPoint) -> dict[str, Any]:
        """What a worker is asked for a point."""
        return {
            "name": planned.name,
            "place": planned.point.to_plain(),
            "sample": asdict(self.sample),
            "benchmark": str(self.benchmark.folder),
            "device": self.context.device,
            "digests": [digest_for_request(checkpoint) for checkpoint in self.open_checkpoints(planned.point.recipe)],
        }

    def compute(self, planned: NamedPoint, context: Context) -> tuple[Point, dict[str, Any]]:
        """The point, and facts about it."""
        place, started, stages = planned.point, time.monotonic(), context.split(dict.fromkeys(STAGES, 1.0))
        about: dict[str, Any] = {
            "chain": [step.key for _, step in place.recipe.stages],
            "experts": len(place.recipe.experts),
        }
        doubts: list[str] = []
        models = self._models(place, stages[MERGING], about, doubts)
        modules = self._modules(place.recipe, models, doubts)
        merged = time.monotonic()
        context = replace(stages[EVALUATING], warn=doubts.append)
        splits, tasks = (self.sample.split,), self.sample.tasks or None
        if list(models) == [MERGED]:
            scores = evaluate(models[MERGED], self.drawn, splits=splits, tasks=tasks, modules=modules, context=context)
        else:
            scores = evaluate_per_task(models, self.drawn, splits=splits, context=context)
        seconds = {MERGING: merged - started, EVALUATING: time.monotonic() - merged}
        device = devices.describe_used_device(devices.choose_device(self.context.device), doubts)
        about |= hardware_facts()
        about |= {"images": int(scores["n"].sum()), "weights": place.terms is not None, "sample": self.sample.split}
        about |= {"warnings": list(dict.fromkeys(doubts))} if doubts else {}
        return Point(planned.name, scores, device, THIS_MACHINE, seconds, versions=versions()), about

    def _models(
        self, place: SweepPoint, context: Context, about: dict[str, Any], doubts: list[str]
    ) -> Mapping[str, Checkpoint]:
        """The models of a point; ``list_doubts`` gets the warnings of its merge, ``about`` what else is noted of it."""
        opened = self.open_checkpoints(place.recipe)
        if place.terms is None:
            models, warnings = self._merge(opened, context)
            doubts.extend(warnings)
            if not place.values:
                with limit_to_one_thread():
                    about["notes"] = fit_coefficients(opened, models[MERGED])
            return models
        parts: dict[str, Checkpoint] = dict(opened.experts)
        if any(what == MERGED for _, what in place.terms):
            if self._line is None or self._line[0] != place.recipe:
                models, warnings = self._merge(opened, context)
                self._line = place.recipe, models[MERGED], warnings
            parts = {MERGED: self._line[1]}
            doubts.extend(self._line[2])
        terms = [(coefficient, parts[what]) for coefficient, what in place.terms]
        return {MERGED: CombinedCheckpoint(opened.pretrained, terms)}

    def _merge(self, opened: OpenedRecipe, context: Context) -> tuple[dict[str, Checkpoint], tuple[str, ...]]:
        """The merged models by task, or the one as "merged", in memory and in its base's dtype; and warnings."""
        self._check_memory(opened)
        result = engine.run_recipe(
            opened.recipe, opened.pretrained, opened.experts, context=context,
            layer_inputs=opened.captured_files.layer_inputs or None, gradients=opened.captured_files.gradients or None,
            **self._images(opened.recipe),
        )  # fmt: skip
        opened.raise_if_changed()
        models: dict[str, Checkpoint] = {}
        for name, tensors in (result.task_state_dicts or {MERGED: result.state_dict}).items():
            models[name] = model = MappingCheckpoint(tensors, name)
            model.metadata = opened.pretrained.metadata
        return models, result.warnings

    def _modules(self, recipe: Recipe, models: Mapping[str, Checkpoint], doubts: list[str]) -> Modules | None:
        """What the recipe's adapt puts on the merged model, whose warnings ``list_doubts`` gets; None without one."""
        if recipe.adapt is None:
            return None
        from merging.engine.adapt import adapt  # its imports take a while

        opened, images = self.open_checkpoints(recipe), self._images(recipe)
        adapted = adapt(
            recipe,
            opened.pretrained,
            opened.experts,
            models[MERGED],
            context=self.context.without_progress(),
            **images,
        )
        doubts.extend(adapted.warnings)
        return adapted.modules

    def _images(self, recipe: Recipe) -> dict[str, Any]:
        """The images that a chain sees: all of a split, not only those that points are evaluated on."""
        drawn = recipe.test_data.values() if recipe.test_data else None
        test_data = None if drawn is None else self.benchmark.test_data((name for name, _ in recipe.experts), **drawn)
        return {"exemplars": self._labeled_exemplars(recipe), "test_data": test_data}

    def _labeled_exemplars(self, recipe: Recipe) -> Any:
        if recipe.exemplars is None:
            return None
        key = recipe.exemplars.per_task, recipe.exemplars.seed
        if key not in self._exemplars:
            self._exemplars = {key: self.benchmark.labeled_exemplars(*key)}
        return self._exemplars[key]

    def estimate_memory(self, opened: OpenedRecipe) -> int:
        """Bytes of memory that a point needs: what the merge takes, and the merged weights; an estimate."""
        return in_memory_bytes(opened, self.context.device)

    def _check_memory(self, opened: OpenedRecipe) -> None:
        needed = self.estimate_memory(opened)
        if needed > (free := free_memory()):
            raise MergingError(f"A point needs about {size_text(needed)} of memory; {size_text(free)} are free.")


def _file_key(recipe: Recipe) -> tuple[Any, ...]:
    """What recipes have in common that open the same files in the same way."""
    stated = recipe.architecture, recipe.activation, recipe.family, recipe.vocabulary
    return recipe.pretrained, recipe.experts, recipe.data_files, *stated


def _point_identity(place: SweepPoint, digests: Mapping[str, str], run_id: str) -> Identity:
    """What the model of a point is made of, from the digests of its files."""
    if place.terms is None or place.terms == ((1.0, MERGED),):
        return ("run", run_id)
    parts = sorted(
        (run_id if what == MERGED else digests[expert_key(what)], coefficient)
        for coefficient, what in place.terms
        if coefficient != 0
    )
    named = [text for text in (place.recipe.activation, place.recipe.architecture) if text]
    return ("weights", digests[PRETRAINED], parts, *named)


def plan_sweep(sweep: Sweep, benchmark: Benchmark) -> list[NamedPoint]:
    """Every point of a sweep with its name. Raises as ``Session.plan_sweep``."""
    return SweepSession(benchmark, sweep.sample).plan_sweep(sweep)


def drop_repeated(planned: Sequence[NamedPoint]) -> list[NamedPoint]:
    """A plan with every point once: lines that begin at the same model share a point."""
    by_name: dict[str, NamedPoint] = {}
    for point in planned:
        by_name.setdefault(point.name, point)
    return list(by_name.values())


def run_sweep(
    sweep: Sweep,
    store: Store,
    benchmark: Benchmark,
    *,
    context: Context = QUIET,
    share: tuple[int, int] = EVERYTHING,
    session: SweepSession | None = None,
) -> SweepOutcome:
    """Compute the missing points and store each as soon as it is done.

    It can pause between two points. A point that fails does not stop the others. Every doubt about what belongs
    together is a warning before the first point is computed, and so is, once, each warning of the points.
    Workers of the context compute, and this process stores. A ``share`` (number, of how many) computes every so
    many-th point, from 0: together the shares are the sweep. A ``session`` computes points in another way than by
    evaluation on the benchmark.

    Raises:
        MergingError: points failed; the message counts them and gives the first reason.
        StoreError: the disk cannot be written to. Cancelled: as asked, or all workers are gone
            (WorkersGone); the points so far are kept.
    """
    points.point_results(store).sweep()
    session = session or SweepSession(benchmark, sweep.sample, context)
    mine = drop_repeated(session.plan_sweep(sweep))[share[0] :: share[1]]
    known = KnownPoints(mine, store, benchmark, session.sample)
    there = known.read_points()
    missing = [planned for planned in mine if planned.name not in there]
    warned: set[str] = set()

    def warn_once(sentence: str) -> None:
        if sentence not in warned:
            warned.add(sentence)
            context.warn(sentence)

    for doubt in list_doubts(sweep, session) if missing else ():
        warn_once(doubt)
    computation, heard = PointComputation(session.compute, session.request), replace(context, warn=warn_once)
    try:
        with open_workers(heard, mixable=True) as workers:
            if workers is not None and missing:
                _check_workers(sweep, session, workers)
            failures = compute_points(missing, len(mine), store, computation, workers, heard)
    except WorkersGone:
        raise
    except Paused:
        return SweepOutcome(len(known.read_points()), len(mine), True)
    if failures:
        name, reason = next(iter(failures.items()))
        where = next(_describe_point(sweep, planned.point) for planned in missing if planned.name == name)
        raise MergingError(
            f"{len(failures)} of {len(mine)} points could not be computed; the others are kept. {where}: {reason}"
        )
    return SweepOutcome(len(mine), len(mine), False)


def _check_workers(sweep: Sweep, session: SweepSession, workers: Workers) -> None:
    """Raise WorkerError if a point of the sweep needs more memory than each worker may take."""
    for recipe in sweep.recipes:
        with contextlib.suppress(CheckpointError):  # its points fail with the reason, and the others do not
            workers.check_memory(session.estimate_memory(session.open_checkpoints(recipe)), "a point")


def list_doubts(sweep: Sweep, session: SweepSession) -> list[str]:
    """What may be wrong with the checkpoints of all recipes, every sentence once; a sample of them is read."""
    sentences: dict[str, None] = {sweep.learning_note: None} if sweep.learning_note else {}
    for recipe in sweep.recipes:
        with contextlib.suppress(MergingError):  # its points fail with the reason, and the others do not
            sentences |= dict.fromkeys(session.open_checkpoints(recipe).doubts)
    return list(sentences)


def _describe_point(sweep: Sweep, place: SweepPoint) -> str:
    values = zip(sweep.axes, place.values, strict=False)
    return ", ".join(f"{axis.target} {value:g}" for axis, value in values) or "the merge"
