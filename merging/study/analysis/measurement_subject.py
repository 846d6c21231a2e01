"""The subject of a measurement, and its result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from merging.base.errors import CheckpointError, StoreError, TaskError
from merging.base.files import atomic
from merging.base.text import first_few
from merging.models.model_references import EXPERTS
from merging.study.runs.run import Run
from merging.study.runs.run_store import Store
from merging.tasks.context import Context, log_warning

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from merging.engine.modules.modules import Modules
    from merging.images.benchmarks.benchmark import Benchmark
    from merging.models.checkpoint import Checkpoint
    from merging.recipes.recipe import Recipe
    from merging.study.runs.opened_recipe import OpenedRecipe

FOLDER = "measured"
MERGING_AGAIN = "merging again"  # the stage before those of the measurement itself
CHANGED_INPUTS_MESSAGE = (
    "The files that its recipe names, or the benchmark, are no longer the ones of this run. "
    "Restore them, or run the recipe again."
)


class MeasurementResult(NamedTuple):
    """The result of a measurement: tables by name, notes for every picture of them (n, seed, split ...), arrays.

    Arrays (*S) hold what is too long for a table, such as features. Their names are file names without the ending, as
    those of tables are.
    """

    tables: Mapping[str, pd.DataFrame]
    notes: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]] = {}


class SubjectKind(StrEnum):
    """The kinds of subjects of measurements; values are the words of messages."""

    RUN = "a run"
    EXPERTS = "the experts of a run"  # independent of how they were merged
    BENCHMARK = "the benchmark, not of a run"
    RUNS = "several runs together"  # their ids joined by ``join_run_ids``, in any order


@dataclass(frozen=True, slots=True)
class PlannedTrial:
    """One of many merges of a measurement, or one model, and its evaluation.

    ``request`` is plain data about what to merge and evaluate; a worker needs only this and the benchmark. ``name`` is
    readable, and unique among the measurement's trials. ``weight`` is proportional to the time of the trial.
    """

    name: str
    request: Mapping[str, Any]
    weight: float = 1.0


@dataclass(frozen=True)
class TrialInputs:
    """The inputs that all trials of a measurement share; ``cache`` holds data that later trials use again."""

    benchmark: Benchmark
    cache: dict[Any, Any] = field(default_factory=dict)


class StoredTables(Protocol):
    """The parts of a stored measurement that another measurement reads."""

    @property
    def notes(self) -> Mapping[str, Any]:
        """The notes for every picture of its tables."""
        ...

    def table(self, name: str) -> pd.DataFrame:
        """One of its tables."""
        ...

    def array(self, name: str) -> NDArray[Any]:
        """One of its arrays, of any shape (*S)."""
        ...


@dataclass
class Subject:
    """The subject of a measurement: a run, its experts, several runs, or the benchmark. Files are opened on first use.

    ``run_id`` is empty if the subject is the benchmark, and several ids joined if it is several runs.
    """

    store: Store
    benchmark: Benchmark
    run_id: str
    kind: SubjectKind = SubjectKind.RUN
    # measures one of its runs by another key: (key, run id, context)
    measure_other: Callable[[str, str, Context], StoredTables] | None = None
    show_partial: Callable[[MeasurementResult], None] = lambda partial: None  # shows partial results to other processes
    run_trials: Callable[[Sequence[PlannedTrial]], list[dict[str, Any]]] = lambda planned: []  # the trials' answers
    layer_inputs: Mapping[str, str] = field(default_factory=dict)  # {expert: file}, instead of those of the recipe
    modules: Modules | None = None  # on top of the model that ``open_models`` yields, only inside its block

    def split_context(self, context: Context, weights: Mapping[str, float]) -> dict[str, Context]:
        """A context for each stage of a measurement; for a run, the first stage is merging again.

        ``weights`` are the expected times of the other stages relative to merging again.
        """
        return context.split({MERGING_AGAIN: 1.0, **weights} if self.kind == SubjectKind.RUN else weights)

    @property
    def recipe(self) -> Recipe:
        """The recipe of the run. Raises StoreError if the run is not a merge."""
        if (recipe := self.store.get_run(self.run_id).recipe) is None:
            raise StoreError(f"Run {self.run_id} is not a merge, so there is nothing to measure.")
        return recipe

    def refuse_modules(self, *, routed_only: bool = False) -> None:
        """Raise TaskError if this measurement would leave out the modules of an adapt on the run's merged model.

        With ``routed_only`` only modules that change the weights from image to image are refused.
        """
        run = self.store.get_run(self.run_id)
        if run.adapt and run.recipe is not None and (run.recipe.is_routed or not routed_only):
            raise TaskError(
                f"{run.adapt} is on top of this run's merged model, and this measurement would leave it out. Measure a "
                "run of the same chain without it."
            )

    @cached_property
    def checkpoints(self) -> OpenedRecipe:
        """The checkpoints that the run merged, whether or not the benchmark has their tasks.

        Raises:
            CheckpointError: a file that the recipe names is missing or has changed.
        """
        return open_merged(self.store.get_run(self.run_id), self.recipe)

    @cached_property
    def checkpoints_on_benchmark(self) -> OpenedRecipe:
        """The checkpoints that the run merged, for work on the benchmark's images; the first of each expert's.

        Raises:
            CheckpointError: a file that the recipe names is missing or has changed.
            TaskError: the benchmark has no images for an expert, or none that fit the model.
        """
        from merging.study.runs.opened_recipe import open_inputs

        opened = open_inputs(self.recipe, benchmark=self.benchmark)
        if opened.run_id() != self.run_id:
            raise CheckpointError(CHANGED_INPUTS_MESSAGE)
        if reason := self.benchmark.describe_misfit(opened.pretrained):
            raise TaskError(f"The run cannot be measured on this benchmark: {reason}")
        if unknown := [name for name in self.recipe.tasks if name not in self.benchmark.experts]:
            raise TaskError(f"The benchmark has no task for {first_few(unknown, 3)}; name experts like its tasks.")
        return opened.with_first_checkpoints()

    @contextmanager
    def open_models_by_task(self, stages: Mapping[str, Context]) -> Iterator[Mapping[str, Checkpoint]]:
        """{task: its merged model}, with the same lifetime as ``open_models``."""
        with self.open_models(stages) as models:
            per_task = self.store.get_run(self.run_id).per_task
            yield {task: models[task if per_task else "merged"] for task in self.checkpoints_on_benchmark.experts}

    @contextmanager
    def open_models(self, stages: Mapping[str, Context]) -> Iterator[Mapping[str, Checkpoint]]:
        """{"merged": the merged model}, or {expert: its model} if the run has several, while the block runs.

        A run that was stored without weights is merged again. If the run is the evaluation of a reference model,
        "merged" is this model. ``modules`` are those that the run's adapt put on top.
        """
        from merging.study.runs.execute import execute

        run = self.store.get_run(self.run_id)
        if run.kind != "merge":
            yield {"merged": self._open_reference(run)}
            return
        folder = None if run.has_model else atomic.make_temporary(measurements_folder(self.store))
        try:
            if folder is not None:
                run = execute(
                    self.recipe,
                    Store(folder, libraries=()),
                    benchmark=self.benchmark,
                    evaluate=False,
                    # a pause would lose what was learned
                    context=replace(stages[MERGING_AGAIN], pause=None, warn=log_warning),
                )
            if run.id != self.run_id:
                raise CheckpointError(CHANGED_INPUTS_MESSAGE)
            models = run.open_models()
            self.modules = run.open_modules(models.get("merged"))
            yield models
        finally:
            self.modules = None
            if folder is not None:
                atomic.remove_temporary(folder)

    def _open_reference(self, run: Run) -> Checkpoint:
        """The benchmark's checkpoint that a stored evaluation is of."""
        from merging.images.benchmarks.benchmark import MULTITASK
        from merging.models.digest_cache import DIGESTS
        from merging.models.model_references import PRETRAINED

        model = self.benchmark.models().get(run.kind if run.kind in {PRETRAINED, MULTITASK} else run.experts[0])
        if model is not None:
            checkpoint = model.open(run.title)
            if DIGESTS.digest(checkpoint) in run.inputs.values():
                return checkpoint
        raise CheckpointError(f"The checkpoint of “{run.title}” is no longer in the benchmark, or has changed.")


def open_merged(run: Run, recipe: Recipe) -> OpenedRecipe:
    """The checkpoints that a run merged; raises CheckpointError if they are missing or have changed."""
    from merging.study.runs.opened_recipe import open_inputs

    opened = open_inputs(recipe)
    digests = opened.digests()
    if changed := [name.removeprefix(EXPERTS) for name in run.inputs if digests.get(name) != run.inputs[name]]:
        raise CheckpointError(
            f"The files that its recipe names are not the ones that this run merged: {first_few(changed, 3)}. "
            "Restore them, or run the recipe again."
        )
    return opened


def measurements_folder(store: Store) -> Path:
    """The folder of this machine's own measurements."""
    return store.root / FOLDER
