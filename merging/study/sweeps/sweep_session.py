"""Computes sweeps point by point; data that points share stay in memory and are computed once.

A plan is the list of a sweep's points with their names. On lines and in planes the weights of models are combined; a
model that a recipe merges is merged once.
"""

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
from merging.engine.evaluation.evaluate import evaluate_answers, evaluate_models, list_task_models
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
from merging.study.runs.run_facts import hardware_facts, list_versions
from merging.study.runs.run_store import Store
from merging.study.sweeps import points
from merging.study.sweeps.known_points import KnownPoints
from merging.study.sweeps.point_computation import STAGES, PointComputation, compute_points
from merging.study.sweeps.point_losses import LossTable
from merging.study.sweeps.points import Identity, Point, PointSample, SampledBenchmark
from merging.study.sweeps.sweep import LINE, SUBSETS, Model, NamedPoint, Sweep, SweepPoint
from merging.study.sweeps.weighted_sum import CombinedCheckpoint, fit_coefficients
from merging.tasks.context import QUIET, Context
from merging.tasks.workers.pools import open_workers
from merging.tasks.workers.workers import Workers

MAX_MERGES = 3  # merged models in memory, as many as a plane goes through
WHOLE_SWEEP = (0, 1)  # the share (0 of 1) that has all points


@dataclass(frozen=True, slots=True)
class SweepOutcome:
    """The outcome of a sweep: the numbers of stored points and of all points, and whether it was paused."""

    stored: int
    points: int
    paused: bool


@dataclass
class SweepSession:
    """The data that the points of a sweep share: open checkpoints, exemplars, images, heads, merged models."""

    benchmark: Benchmark
    sample: PointSample
    context: Context = QUIET
    named: NamedPoint | None = None  # on a worker: the point of the request whose name it has just computed
    _opened: dict[tuple[str, str, str], Checkpoint] = field(default_factory=dict)
    _recipes: dict[tuple[Any, ...], OpenedRecipe] = field(default_factory=dict)  # by ``_file_key``
    _captured_files: dict[tuple[Any, ...], CapturedFiles] = field(default_factory=dict)  # by ``_file_key``
    _digests_by_files: dict[tuple[Any, ...], dict[str, str]] = field(default_factory=dict)  # by ``_file_key``
    _exemplars: dict[tuple[int, int], Any] = field(default_factory=dict)
    _merges: dict[Recipe, tuple[Checkpoint, tuple[str, ...]]] = field(default_factory=dict)  # with their warnings

    def __post_init__(self) -> None:
        self.sample = self.sample.normalize_on(self.benchmark)
        self.sampled = SampledBenchmark.from_benchmark(self.benchmark, self.sample)

    def open_checkpoints(self, recipe: Recipe) -> OpenedRecipe:
        """The checkpoints of a recipe; each file is opened once and shared by recipes with different steps."""
        key = _file_key(recipe)
        # Steps with a ``content`` name tensors, so ``attach_checkpoints`` checks every such recipe.
        if key not in self._recipes or any(method.content for method in recipe.methods):
            pretrained = self._open_checkpoint(recipe.pretrained, "pretrained")
            experts = {name: self._open_checkpoint(reference, name, pretrained) for name, reference in recipe.experts}
            if key not in self._captured_files:
                self._captured_files[key] = CapturedFiles.open(recipe, None)
            opened = opened_recipe.attach_checkpoints(recipe, pretrained, experts, self.benchmark)
            self._recipes[key] = replace(opened, captured_files=self._captured_files[key])
        return replace(self._recipes[key], recipe=recipe)

    def _digests(self, opened: OpenedRecipe) -> dict[str, str]:
        """The digests of the files of a recipe when they were opened."""
        key = _file_key(opened.recipe)
        if key not in self._digests_by_files:
            self._digests_by_files[key] = opened.digests()
        return self._digests_by_files[key]

    def _open_checkpoint(self, reference: str, name: str, pretrained: Checkpoint | None = None) -> Checkpoint:
        key = reference, name, "" if pretrained is None else pretrained.label
        if key not in self._opened:
            self._opened[key] = open_checkpoint(reference, name, like=pretrained)
        return self._opened[key]

    def plan_sweep(self, sweep: Sweep) -> list[NamedPoint]:
        """Every point of a sweep with its name.

        Raises:
            CheckpointError: a checkpoint is missing or damaged. TaskError: the benchmark does not fit the models.
        """
        for recipe in sweep.recipes:
            if reason := self.benchmark.describe_misfit(self.open_checkpoints(recipe).pretrained):
                raise MergingError(f"These models cannot be evaluated on the benchmark: {reason}")
        for key in sweep.sample.tasks:
            self.benchmark.find_task(key)
        planned = [self.plan_point(point) for point in sweep.points]
        # The scores of a run may lack its answers to single images, which the tables of subsets need.
        return [replace(point, run_id="") for point in planned] if sweep.kind == SUBSETS else planned

    def plan_point(self, point: SweepPoint) -> NamedPoint:
        """The point with its name and its run's id. Reads each checkpoint that this process has not read yet."""
        opened = self.open_checkpoints(point.recipe)
        digests = self._digests(opened)
        run_id = opened.run_id(digests)
        identity = points.identify_merge(run_id)
        if point.terms is not None:
            parts = [(scale, self._digest_model(model, digests)) for scale, model in point.terms if scale != 0]
            identity = _identify_sum(point.recipe, digests[PRETRAINED], parts)
            run_id = "" if point.merge is None else self._digest_model(point.merge, digests)
        name = points.name_point(identity, self.benchmark, self.sample)
        # A point without values is the merge of a plane, which has notes that no run has.
        return NamedPoint(point, name, run_id if point.values else "")

    def _digest_model(self, model: Model, digests: Mapping[str, str]) -> str:
        """The digest of an expert, or the id of the run of a merge."""
        if isinstance(model, str):
            return digests[expert_key(model)]
        opened = self.open_checkpoints(model)
        return opened.run_id(self._digests(opened))

    def request(self, planned: NamedPoint) -> dict[str, Any]:
        """The request to a worker for a point."""
        return {
            "name": planned.name,
            "place": planned.point.to_plain(),  # its recipe and values
            "sample": asdict(self.sample),
            "benchmark": str(self.benchmark.folder),
            "device": self.context.device,
            "digests": [
                digest_for_request(checkpoint)
                for recipe in planned.point.opened_recipes
                for checkpoint in self.open_checkpoints(recipe)
            ],
        }

    def compute(self, planned: NamedPoint, context: Context) -> tuple[Point, dict[str, Any]]:
        """The point, and facts about it for its file and for estimates of later points.

        The fact "weights" says whether the point combines weights instead of merging. Doubts are all warnings.
        """
        point, started, phases = planned.point, time.monotonic(), context.split(dict.fromkeys(STAGES, 1.0))
        facts: dict[str, Any] = {
            "chain": [step.key for _, step in point.recipe.stages],
            "experts": len(point.recipe.experts),
        }
        doubts: list[str] = []
        models = self._models(point, phases[MERGING], facts, doubts)
        modules = self._adapt_models(point.recipe, models, doubts)
        merged = time.monotonic()
        context = replace(phases[EVALUATING], warn=doubts.append)
        splits, tasks = (self.sample.split,), self.sample.tasks or None
        losses = LossTable(self.sampled) if point.terms is not None else None
        if list(models) == [MERGED]:
            evaluation = evaluate_answers(
                models[MERGED], self.sampled, splits=splits, tasks=tasks, modules=modules, context=context,
                inspect=None if losses is None else losses.note,
            )  # fmt: skip
        else:
            evaluation = evaluate_models(list_task_models(models, self.sampled), self.sampled, splits, context)
        scores = points.add_predictions(evaluation)
        if losses is not None:
            scores = losses.add_to(scores)
        seconds = {MERGING: merged - started, EVALUATING: time.monotonic() - merged}
        # One of the warnings says so if the device ran out of memory and the CPU computed the point.
        device = devices.describe_used_device(devices.choose_device(self.context.device), doubts)
        facts |= hardware_facts()
        facts |= {"images": int(scores["n"].sum()), "weights": point.terms is not None, "sample": self.sample.split}
        facts |= {"warnings": list(dict.fromkeys(doubts))} if doubts else {}
        return Point(planned.name, scores, device, THIS_MACHINE, seconds, versions=list_versions()), facts

    def _models(
        self, point: SweepPoint, context: Context, facts: dict[str, Any], doubts: list[str]
    ) -> Mapping[str, Checkpoint]:
        """The models of a point; warnings of its merge are added to ``doubts``, its notes to ``facts``."""
        opened = self.open_checkpoints(point.recipe)
        if point.terms is None:
            models, warnings = self._merge_in_memory(opened, context)
            doubts.extend(warnings)
            if not point.values:  # the merge of a plane: note where it lies
                with limit_to_one_thread():
                    facts["notes"] = fit_coefficients(opened, models[MERGED])
            return models
        if missing := [recipe for recipe in point.merged_recipes if recipe not in self._merges]:
            self._check_memory(self.open_checkpoints(missing[0]), len(missing) - 1)
        terms = []
        for coefficient, model in point.terms:
            if coefficient != 0 and isinstance(model, str):
                terms.append((coefficient, opened.experts[model]))
            elif coefficient != 0 and isinstance(model, Recipe):
                merged, warnings = self._find_merge(model, context)
                doubts.extend(warnings)
                terms.append((coefficient, merged))
        return {MERGED: CombinedCheckpoint(opened.pretrained, terms)}

    def _find_merge(self, recipe: Recipe, context: Context) -> tuple[Checkpoint, tuple[str, ...]]:
        """The merged model of a recipe, with its warnings; those of the last ``MAX_MERGES`` recipes stay in memory."""
        if recipe not in self._merges:
            while len(self._merges) >= MAX_MERGES:
                self._merges.pop(next(iter(self._merges)))
            models, warnings = self._merge_in_memory(self.open_checkpoints(recipe), context)
            self._merges[recipe] = models[MERGED], warnings
        return self._merges[recipe]

    def _merge_in_memory(self, opened: OpenedRecipe, context: Context) -> tuple[dict[str, Checkpoint], tuple[str, ...]]:
        """The merged models in memory by task, or a single one as "merged", in the pretrained dtypes; and warnings."""
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

    def _adapt_models(self, recipe: Recipe, models: Mapping[str, Checkpoint], doubts: list[str]) -> Modules | None:
        """The modules of the recipe's adapt, None if it has none; warnings are added to ``doubts``."""
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
        """The images that a chain learns from: of a whole split, not only those that points are evaluated on."""
        test_data = None
        if recipe.test_data:
            test_data = self.benchmark.test_data((name for name, _ in recipe.experts), **recipe.test_data.values())
        return {"exemplars": self._labeled_exemplars(recipe), "test_data": test_data}

    def _labeled_exemplars(self, recipe: Recipe) -> Any:
        if recipe.exemplars is None:
            return None
        key = recipe.exemplars.per_task, recipe.exemplars.seed
        if key not in self._exemplars:
            self._exemplars = {key: self.benchmark.labeled_exemplars(*key)}
        return self._exemplars[key]

    def estimate_memory(self, opened: OpenedRecipe, others: int = 0) -> int:
        """Estimated bytes of memory for a point: for the merge, its weights, and those of ``others`` merged models."""
        return in_memory_bytes(opened, self.context.device) + others * opened.pretrained.nbytes

    def _check_memory(self, opened: OpenedRecipe, others: int = 0) -> None:
        needed = self.estimate_memory(opened, others)
        if needed > (free := free_memory()):
            raise MergingError(f"A point needs about {size_text(needed)} of memory; {size_text(free)} are free.")


def _file_key(recipe: Recipe) -> tuple[Any, ...]:
    """The part of a recipe that determines which files are opened, and as which network."""
    network_settings = recipe.architecture, recipe.activation, recipe.family, recipe.vocabulary
    return recipe.pretrained, recipe.experts, recipe.data_files, *network_settings


def _identify_sum(recipe: Recipe, pretrained: str, parts: Sequence[tuple[float, str]]) -> Identity:
    """The identity of a sum of changes, from the pretrained model's digest and pairs of a coefficient and a digest."""
    network_settings = [text for text in (recipe.activation, recipe.architecture) if text]
    return ("sum", pretrained, sorted((digest, coefficient) for coefficient, digest in parts), *network_settings)


def plan_sweep(sweep: Sweep, benchmark: Benchmark) -> list[NamedPoint]:
    """Every point of a sweep with its name. Raises like ``SweepSession.plan_sweep``."""
    return SweepSession(benchmark, sweep.sample).plan_sweep(sweep)


def drop_repeated(planned: Sequence[NamedPoint]) -> list[NamedPoint]:
    """A plan with every point once, since the lines of recipes on one pretrained model share the point at α = 0."""
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
    share: tuple[int, int] = WHOLE_SWEEP,
    session: SweepSession | None = None,
) -> SweepOutcome:
    """Compute the missing points and store each as soon as it is computed.

    The sweep can pause between two points. A point that fails does not stop the others. Doubts about whether experts
    belong to the pretrained model are warnings before the first point; each warning of the points occurs once. Workers
    of the context compute, and this process stores. A ``share`` (i, m) computes every m-th point, beginning with
    point i (from 0), so m shares together compute the sweep. ``session`` replaces the
    evaluation on the benchmark by another computation.

    Raises:
        MergingError: points failed; the message has their number and the first reason.
        StoreError: the disk cannot be written to. Cancelled: the user cancelled, or all workers are gone (WorkersGone);
            finished points remain stored.
    """
    points.point_results(store).sweep()  # removes temporary files that crashed writers left
    session = session or SweepSession(benchmark, sweep.sample, context)
    planned_points = drop_repeated(session.plan_sweep(sweep))[share[0] :: share[1]]
    known_points = KnownPoints(planned_points, store, benchmark, session.sample)
    stored_points = known_points.read_points()
    missing = [planned for planned in planned_points if planned.name not in stored_points]
    if sweep.kind == LINE and len(sweep.recipes) > MAX_MERGES:  # else each point would merge its recipe again
        missing.sort(key=lambda planned: planned.point.line)
    seen_warnings: set[str] = set()

    def warn_once(sentence: str) -> None:
        if sentence not in seen_warnings:
            seen_warnings.add(sentence)
            context.warn(sentence)

    for doubt in list_sweep_doubts(sweep, session) if missing else ():
        warn_once(doubt)
    computation = PointComputation(session.compute, session.request, sweep.unit)
    point_context = replace(context, warn=warn_once)
    try:
        # mixable: different hardware may compute points of one sweep, since each point states its device
        with open_workers(point_context, mixable=True) as workers:
            if workers is not None and missing:
                _check_workers(sweep, session, workers)
            failures = compute_points(missing, len(planned_points), store, computation, workers, point_context)
    except WorkersGone:
        raise
    except Paused:
        return SweepOutcome(len(known_points.read_points()), len(planned_points), True)
    if failures:
        name, reason = next(iter(failures.items()))
        values = next(_describe_point(sweep, planned.point) for planned in missing if planned.name == name)
        raise MergingError(
            f"{len(failures)} of {len(planned_points)} {sweep.unit}s could not be computed; the others are stored. "
            f"{values}: {reason}"
        )
    return SweepOutcome(len(planned_points), len(planned_points), False)


def _check_workers(sweep: Sweep, session: SweepSession, workers: Workers) -> None:
    """Raise WorkerError if a point of the sweep needs more memory than each worker may take.

    Raises RecipeError for a method that other processes do not have.
    """
    others = max(min(len(sweep.list_merges()), MAX_MERGES) - 1, 0) if sweep.has_losses else 0  # they stay in memory
    for recipe in sweep.recipes:
        recipe.refuse_elsewhere()
        with contextlib.suppress(CheckpointError):  # only the points of this recipe fail, with the reason
            workers.check_memory(session.estimate_memory(session.open_checkpoints(recipe), others), "a point")


def list_sweep_doubts(sweep: Sweep, session: SweepSession) -> list[str]:
    """Sentences about possible problems of all recipes' checkpoints, each once, from a sample of their weights."""
    # The note says that a recipe learns from the images that the sweep is judged on.
    sentences: dict[str, None] = {sweep.learning_note: None} if sweep.learning_note else {}
    for recipe in sweep.recipes:
        with contextlib.suppress(MergingError):  # only the points of this recipe fail, with the reason
            sentences |= dict.fromkeys(session.open_checkpoints(recipe).doubts)
    return list(sentences)


def _describe_point(sweep: Sweep, point: SweepPoint) -> str:
    if sweep.kind == SUBSETS:
        return " + ".join(name for name, _ in point.recipe.experts) if point.terms is None else PRETRAINED
    values = zip(sweep.axes, point.values, strict=False)
    return ", ".join(f"{axis.target} {value:g}" for axis, value in values) or "the merge"
