"""The one path from a recipe to a stored run, for the app, the command line and the library's builder."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from merging.benchmarks.benchmark import Benchmark
from merging.errors import NeedsError, StoreError, TaskError
from merging.progress import Cancel, Meter, Phases, ProgressCallback
from merging.recipes.recipe import Recipe
from merging.runs.compute import Work
from merging.runs.estimate import READING, estimate
from merging.runs.inputs import OpenedRecipe, log_warning, open_inputs
from merging.runs.run import NOT_EVALUATED, Run
from merging.runs.store import Store

if TYPE_CHECKING:
    from merging.methods.exemplars import TaskExemplars


def execute(  # noqa: PLR0913 - all that distinguishes the app, the command line and the library
    recipe: Recipe,
    store: Store,
    *,
    benchmark: Benchmark | None = None,
    device: str = "auto",
    progress: ProgressCallback | None = None,
    cancel: Cancel | None = None,
    evaluate: bool = True,
    keep_model: bool = True,
    need_model: bool = False,
    base: Path | None = None,
    strict: bool = False,
    warn: Callable[[str], None] = log_warning,
) -> Run:
    """The stored run of a recipe: an existing one, or a new one.

    Args:
        benchmark: what the merged model is evaluated on; default: the bundled one, if it fits the model.
        progress: called with a Progress whose fraction covers reading, merging and evaluating together.
        evaluate: whether the run must have scores; a stored run without them gets them.
        keep_model: whether the weights of a new run stay in the store.
        need_model: whether a stored run without weights (a precomputed one) is not enough.
        base: the folder from which relative paths in the recipe count.
        strict: whether to refuse experts that probably do not belong to the pretrained model.
        warn: called with every doubt about what belongs together, before anything is computed; the run has them, too.

    Raises:
        CheckpointError, CompatibilityError, NeedsError: the recipe cannot be run as given.
        StoreError: the disk is full or cannot be written to.
        Cancelled: ``cancel`` requested it; nothing is kept.
    """
    opened = open_inputs(recipe, base, benchmark)
    if strict:
        opened.raise_if_doubtful()
    fitting, reason = _choose_benchmark(opened, benchmark) if evaluate or recipe.needs else (None, "")
    scored_on = fitting if evaluate else None
    plan = estimate(opened, scored_on, store.runs())
    phases = Phases(plan.phases, progress)
    started = time.monotonic()
    digests = opened.digests(phases.callback(READING), cancel)
    reading = time.monotonic() - started
    run_id = opened.run_id(digests)
    check = Meter(0, None, cancel).check

    if run := _stored(store, run_id, scored_on, need_model):
        return run
    with store.lock(run_id, check):
        if run := _stored(store, run_id, scored_on, need_model):
            return run
        exemplars = _exemplars(recipe, fitting, reason)
        work = Work(run_id, opened, digests, store, scored_on, exemplars, device, phases, cancel, plan, keep_model)
        if reason and evaluate:
            work.warnings.append(reason)
        work.seconds[READING] = reading
        _compute(work, warn)
    return _own(store, run_id)


def _compute(work: Work, warn: Callable[[str], None]) -> None:
    """Add scores to the stored run if only they are missing, or merge."""
    stored = next((run for run in work.store.candidates(work.run_id) if run.has_model), None)
    if stored is not None and work.benchmark is not None:
        work.add_scores(stored)
        return
    for doubt in work.opened.doubts:
        warn(doubt)
    work.merge()


def _exemplars(recipe: Recipe, benchmark: Benchmark | None, reason: str) -> dict[str, TaskExemplars] | None:
    """Training images for the methods that need some, drawn as the recipe says, with labels and heads."""
    if recipe.exemplars is None:
        return None
    if benchmark is None:
        raise NeedsError(f"{recipe.text()} needs exemplars, and there are none for these models. {reason}")
    return benchmark.labeled_exemplars(recipe.exemplars.per_task, recipe.exemplars.seed)


def _stored(store: Store, run_id: str, benchmark: Benchmark | None, need_model: bool) -> Run | None:
    """A stored run with scores on the benchmark, if there is one, and with weights if they are needed."""
    for run in store.candidates(run_id):
        scored = benchmark is None or (run.has_scores and run.benchmark == benchmark.digest)
        if scored and (run.has_model or not need_model):
            return run
    return None


def _own(store: Store, run_id: str) -> Run:
    for run in store.candidates(run_id):
        return run
    raise StoreError(f"Run {run_id} was written but cannot be read back; is the store's folder being cleared?")


def _choose_benchmark(opened: OpenedRecipe, benchmark: Benchmark | None) -> tuple[Benchmark | None, str]:
    """The benchmark to evaluate on, or None and the reason."""
    try:
        chosen = benchmark or Benchmark.load()
    except TaskError as error:
        return None, f"{NOT_EVALUATED}: {error}"
    reason = chosen.misfit(opened.pretrained)
    return (None, f"{NOT_EVALUATED}: {reason}") if reason else (chosen, "")
