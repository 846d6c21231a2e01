"""From a recipe to a stored run, for the app, the command line and the builder of the bundled library.

A run may have several stored copies, with the same id: in this machine's store and in libraries, without or with
scores, on different benchmarks. A head is the matrix of class embeddings with which features are classified.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

from merging.base.errors import Cancelled, MergingError, NeedsError, Paused, StoreError, TaskError
from merging.base.free_memory import free_memory
from merging.base.progress import Cancel
from merging.engine.needs import check_kind
from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.recipe import Recipe
from merging.study.runs.estimate import MERGING, READING, Estimate, estimate_run
from merging.study.runs.opened_recipe import OpenedRecipe, open_inputs
from merging.study.runs.run import NOT_EVALUATED, Run
from merging.study.runs.run_store import Store
from merging.study.runs.run_work import ChainImages, KnownScores, RunWork
from merging.tasks.context import QUIET, Context

if TYPE_CHECKING:
    from merging.engine.learning.learning_state import LearningState
    from merging.images.exemplars import TaskExemplars


class RunOptions(TypedDict, total=False):
    """Which parts of a run the caller needs, and which parts a new run stores."""

    evaluate: bool  # whether the run must have scores; a stored run without scores is evaluated
    keep_model: bool  # whether a new run stores its weights
    need_model: bool  # whether a stored run must have weights
    strict: bool  # whether to refuse experts that probably do not belong to the pretrained model


DEFAULT_OPTIONS = RunOptions(evaluate=True, keep_model=True, need_model=False, strict=False)


def complete_options(options: RunOptions) -> RunOptions:
    """The options, with defaults for missing ones. Raises TypeError for an unknown option."""
    if unknown := options.keys() - DEFAULT_OPTIONS.keys():
        raise TypeError(f"A run has no option {', '.join(sorted(unknown))}; it has {', '.join(DEFAULT_OPTIONS)}.")
    return {**DEFAULT_OPTIONS, **options}


def execute(
    recipe: Recipe,
    store: Store,
    *,
    benchmark: Benchmark | None = None,
    context: Context = QUIET,
    base: Path | None = None,
    announce: Callable[[Estimate], None] | None = None,
    known_scores: KnownScores | None = None,
    **options: Unpack[RunOptions],
) -> Run:
    """The stored run of a recipe: an existing one, or a new one.

    Args:
        benchmark: what the merged model is evaluated on; default: the bundled one, if it fits the model.
        context: its progress covers reading, merging and evaluating together. It can pause while a method learns; the
            same recipe then resumes from there. Doubts about whether experts belong to the pretrained model are
            warnings before the computation, and stored with the run. Workers compute whole tensors and features.
        base: the folder to which relative paths in the recipe are relative.
        announce: called with the cost before a method learns, or matrices of networks other than CLIP are read.
        known_scores: scores of the run's model on the benchmark, if it was evaluated together with other models.
        options: see RunOptions.

    Raises:
        CheckpointError, CompatibilityError, NeedsError, MergingError: the recipe cannot be run, or memory is too small.
        StoreError: the disk cannot be written to. Cancelled: the user cancelled, and nothing is stored. Paused: the
            user paused, and what was learned so far is stored.
    """
    all_options = complete_options(options)
    evaluate, need_model = all_options["evaluate"], all_options["need_model"]
    opened = _open_recipe(recipe, base, benchmark, all_options["strict"])
    # The benchmark that fits the models, or None with the reason; without scores, images may still be needed of it.
    fitting_benchmark, reason = find_fitting_benchmark(opened, benchmark) if evaluate or recipe.needs else (None, "")
    scored_on = fitting_benchmark if evaluate else None
    plan = _plan_run(opened, scored_on, store, context.device, announce)
    parts = context.split(plan.phases)
    digests, reading = _read_digests(opened, parts[READING])
    run_id = opened.run_id(digests)
    if run := find_stored_run(store, run_id, scored_on, need_model):
        return run
    with store.lock(run_id, parts[MERGING], "computes the same run"):
        if run := find_stored_run(store, run_id, scored_on, need_model):
            return run
        images = ChainImages(
            _sample_exemplars(recipe, fitting_benchmark, reason), _sample_test_data(recipe, fitting_benchmark, reason)
        )
        work = RunWork(
            run_id, opened, digests, store, scored_on, images, context, parts, plan, all_options["keep_model"],
            known_scores=known_scores, seconds={READING: reading}, warnings=[reason] if reason and evaluate else [],
        )  # fmt: skip
        _compute(work, announce)
    return _read_back(store, run_id)


def _open_recipe(recipe: Recipe, base: Path | None, benchmark: Benchmark | None, strict: bool) -> OpenedRecipe:
    """The recipe with its files open. Raises MergingError if these models do not suit it, or ``strict`` forbids it."""
    opened = open_inputs(recipe, base, benchmark)
    check_kind(recipe, opened.pretrained, recipe.data_files.layer_inputs or None, recipe.data_files.gradients or None)
    if strict:
        opened.raise_if_doubtful()
    return opened


def _plan_run(
    opened: OpenedRecipe, benchmark: Benchmark | None, store: Store, device: str,
    announce: Callable[[Estimate], None] | None,
) -> Estimate:  # fmt: skip
    """The estimated cost of the run. Raises MergingError, before files are read, if tensors do not fit into memory."""
    plan = estimate_run(opened, benchmark, store.list_runs(), device)
    if (sentence := plan.explain_too_large(free_memory(), opened.recipe)) and not _is_known(opened.recipe, store):
        raise MergingError(sentence)
    if plan.matrices and not opened.recipe.learns and announce is not None:
        announce(plan)
    return plan


def _is_known(recipe: Recipe, store: Store) -> bool:
    """Whether a stored run has this recipe, so that there may be nothing to compute."""
    with contextlib.suppress(MergingError):  # a method of another version
        return any(run.recipe == recipe for run in store.list_runs())
    return False


def _read_digests(opened: OpenedRecipe, context: Context) -> tuple[dict[str, str], float]:
    """The digests of the checkpoints, and the seconds that reading them took."""
    started = time.monotonic()
    return opened.digests(context), time.monotonic() - started


@contextlib.contextmanager
def _learning_state(store: Store, run_id: str, pause: Cancel | None) -> Iterator[LearningState]:
    """The learned state of an earlier attempt, from which the block resumes; removed when it is done or cancelled."""
    from merging.engine.learning.learning_state import LearningState  # its imports take a while

    try:
        yield LearningState(store.learning_file(run_id), run_id, pause)
    except Paused:
        raise
    except Cancelled:
        store.delete_learned_state(run_id)
        raise
    store.delete_learned_state(run_id)


def _compute(work: RunWork, announce: Callable[[Estimate], None] | None) -> None:
    """Add scores to the stored run if only they are missing, or merge."""
    stored_copy = next((run for run in work.store.list_copies(work.run_id) if run.has_model), None)
    if stored_copy is not None and work.benchmark is not None:
        work.add_scores(stored_copy)
        return
    for doubt in work.opened.doubts:
        work.context.warn(doubt)
    learns = work.recipe.learns
    if learns and announce is not None:
        announce(work.plan)
    with (
        _learning_state(work.store, work.run_id, work.context.pause)
        if learns
        else contextlib.nullcontext() as work.learning_state
    ):
        work.merge()


def _sample_exemplars(recipe: Recipe, benchmark: Benchmark | None, reason: str) -> dict[str, TaskExemplars] | None:
    """Labeled training images, with heads, as the recipe samples them; None if its methods need none."""
    if recipe.exemplars is None:
        return None
    if benchmark is None:
        raise NeedsError(
            f"{recipe.text()} needs exemplars, and there are none for these models. "
            f"{reason}{_describe_alternative(recipe)}"
        )
    return benchmark.labeled_exemplars(recipe.exemplars.per_task, recipe.exemplars.seed)


def _describe_alternative(recipe: Recipe) -> str:
    """A sentence about files that can replace exemplars; empty if none can."""
    if not all(method.reads_layer_inputs for method, _ in recipe.data_methods):
        return ""
    sentence = "Files of the experts' layer inputs can replace them."
    return f" {sentence} On the command line: --layer-inputs NAME=FILE for each expert."


def _sample_test_data(recipe: Recipe, benchmark: Benchmark | None, reason: str) -> dict[str, TaskExemplars] | None:
    """Unlabeled images of the merged tasks, with heads, as the recipe samples them; None if it needs none."""
    if recipe.test_data is None:
        return None
    if benchmark is None:
        raise NeedsError(f"{recipe.text()} needs images to learn from, and there are none for these models. {reason}")
    return benchmark.test_data((name for name, _ in recipe.experts), **recipe.test_data.values())


def find_stored_run(store: Store, run_id: str, benchmark: Benchmark | None, need_model: bool) -> Run | None:
    """A stored copy of the run, with scores if there is a benchmark, and weights if ``need_model``; None if missing."""
    for run in store.list_copies(run_id):
        is_scored = benchmark is None or (run.has_scores and run.benchmark == benchmark.digest)
        if is_scored and (run.has_model or not need_model):
            return run
    return None


def _read_back(store: Store, run_id: str) -> Run:
    for run in store.list_copies(run_id):
        return run
    raise StoreError(f"Run {run_id} was written but cannot be read back; is the store's folder being cleared?")


def find_fitting_benchmark(opened: OpenedRecipe, benchmark: Benchmark | None) -> tuple[Benchmark | None, str]:
    """The benchmark to evaluate on, or None and the reason."""
    try:
        candidate = benchmark or Benchmark.load()
    except TaskError as error:
        return None, f"{NOT_EVALUATED}: {error}"
    reason = candidate.describe_misfit(opened.pretrained)
    return (None, f"{NOT_EVALUATED}: {reason}") if reason else (candidate, "")
