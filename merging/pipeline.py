"""The one path from a recipe to a stored run; the app, the command line and the library's builder all take it."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from merging.checkpoints import open_checkpoint
from merging.engine import choose_device, describe_device
from merging.entries import write_json
from merging.errors import NeedsError, StoreError, TaskError
from merging.estimate import EVALUATING, READING, Estimate, estimate
from merging.evaluate import evaluate as evaluate_model
from merging.known import DIGESTS
from merging.progress import Cancel, Meter, Phases, ProgressCallback
from merging.recipe import Recipe
from merging.runs import FACTS, NOT_EVALUATED, SCORES, Run, write_table
from merging.sources import Opened, open_inputs
from merging.store import Store
from merging.tasks import MULTITASK, PRETRAINED, Benchmark
from merging.work import Work, facts

if TYPE_CHECKING:
    import pandas as pd

    from merging.exemplars import TaskExemplars

__all__ = ["Estimate", "accuracy_of_experts", "estimate", "execute", "references"]


def execute(
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
) -> Run:
    """The stored run of a recipe: the one that is there, or a new one.

    Args:
        benchmark: what the merged model is evaluated on; default: the bundled one, if it fits the model.
        progress: called with a Progress whose fraction covers reading, merging and evaluating together.
        evaluate: whether the run must have scores; a stored run without them gets them.
        keep_model: whether the weights of a new run stay in the store.
        need_model: whether a stored run without weights (a precomputed one) does not do.
        base: the folder from which relative paths in the recipe count.

    Raises:
        CheckpointError, CompatibilityError, NeedsError: the recipe cannot be run as given.
        StoreError: the disk is full or cannot be written to.
        Cancelled: ``cancel`` said so; nothing is kept.
    """
    opened = open_inputs(recipe, base, benchmark)
    fitting, reason = _choose_benchmark(opened, benchmark) if evaluate or recipe.needs else (None, "")
    chosen = fitting if evaluate else None
    plan = estimate(opened, chosen, store.runs())
    phases = Phases(plan.phases, progress)
    started = time.monotonic()
    digests = opened.digests(phases.callback(READING), cancel)
    reading = time.monotonic() - started
    run_id = opened.run_id(digests)
    check = Meter(0, None, cancel).check

    if found := _stored(store, run_id, chosen, need_model):
        return found
    with store.lock(run_id, check):
        if found := _stored(store, run_id, chosen, need_model):
            return found
        exemplars = _exemplars(recipe, fitting, reason)
        work = Work(run_id, opened, digests, store, chosen, exemplars, device, phases, cancel, plan, keep_model)
        if reason and evaluate:
            work.warnings.append(reason)
        work.seconds[READING] = reading
        scoreable = next((run for run in store.candidates(run_id) if run.has_model), None)
        if scoreable is not None and chosen is not None:
            work.add_scores(scoreable)
        else:
            work.merge()
    return _own(store, run_id)


def _exemplars(recipe: Recipe, benchmark: Benchmark | None, reason: str) -> dict[str, TaskExemplars] | None:
    """Training images for the methods that need some, drawn as the recipe says, with labels and heads."""
    if recipe.exemplars is None:
        return None
    if benchmark is None:
        raise NeedsError(f"{recipe.text()} needs exemplars, and there are none for these models. {reason}")
    return benchmark.labeled_exemplars(recipe.exemplars.per_task, recipe.exemplars.seed)


def _stored(store: Store, run_id: str, benchmark: Benchmark | None, need_model: bool) -> Run | None:
    """A stored run with all that is wanted."""
    for run in store.candidates(run_id):
        scored = benchmark is None or (run.has_scores and run.benchmark == benchmark.digest)
        if scored and (run.has_model or not need_model):
            return run
    return None


def _own(store: Store, run_id: str) -> Run:
    for run in store.candidates(run_id):
        return run
    raise StoreError(f"Run {run_id} was written but cannot be read back; is the store's folder being cleared?")


def _choose_benchmark(opened: Opened, benchmark: Benchmark | None) -> tuple[Benchmark | None, str]:
    """The benchmark to evaluate on, or None and the reason."""
    try:
        found = benchmark or Benchmark.load()
    except TaskError as error:
        return None, f"{NOT_EVALUATED}: {error}"
    reason = found.misfit(opened.pretrained)
    return (None, f"{NOT_EVALUATED}: {reason}") if reason else (found, "")


def settled(opened: Opened, found: Sequence[Run]) -> bool:
    """Whether one of these copies of a run has all the scores that it can have, on the benchmark if one was named."""
    if (on := opened.benchmark) is None:
        return any(run.evaluation_settled for run in found)
    if any(run.has_scores and run.benchmark == on.digest for run in found):
        return True
    return any(run.evaluation_settled for run in found) and bool(on.misfit(opened.pretrained))


def references(
    store: Store,
    benchmark: Benchmark,
    *,
    device: str = "auto",
    progress: ProgressCallback | None = None,
    cancel: Cancel | None = None,
    compute: bool = True,
) -> dict[str, Run]:
    """What merged models are compared with: {"pretrained", each expert's task, "multitask": its stored evaluation}.

    With ``compute=False`` only those that are stored already.
    """
    found = {}
    wanted = _reference_models(benchmark)
    phases = Phases(dict.fromkeys(wanted, 1.0), progress)
    for name, reference in wanted.items():
        checkpoint = open_checkpoint(reference, name)
        content = DIGESTS.digest(checkpoint)
        run_id = hashlib.sha256(f"{content} on {benchmark.digest}".encode()).hexdigest()[:12]
        if compute and not store.has(run_id):
            started = time.monotonic()
            scores = evaluate_model(checkpoint, benchmark, device=device, progress=phases.callback(name), cancel=cancel)
            seconds = {EVALUATING: time.monotonic() - started}
            _write_reference(store, benchmark, run_id, name, content, scores, seconds, device)
        if run := store.find(run_id):
            found[name] = run
    return found


def _reference_models(benchmark: Benchmark) -> dict[str, str]:
    wanted = {PRETRAINED: benchmark.pretrained, **benchmark.experts}
    return wanted | ({MULTITASK: benchmark.multitask} if benchmark.multitask else {})


def _write_reference(
    store: Store,
    benchmark: Benchmark,
    run_id: str,
    name: str,
    content: str,
    scores: pd.DataFrame,
    seconds: Mapping[str, float],
    device: str,
) -> None:
    kind = name if name in (PRETRAINED, MULTITASK) else "expert"
    titles = {PRETRAINED: "Pretrained", MULTITASK: "Trained on all tasks"}
    inside = {PRETRAINED: [], MULTITASK: list(benchmark.experts)}
    with store.writing(run_id) as folder:
        schema = write_table(folder, SCORES, scores)
        said = facts(
            run_id=run_id,
            kind=kind,
            title=titles.get(name) or f"Expert for {benchmark.task(name).title}",
            created=store.dated,
            device=describe_device(choose_device(device)),
            seconds=dict(seconds),
            warnings=[],
            seed=None,
            chain=[],
            experts=inside.get(name, [name]),
            inputs={name if kind != "expert" else f"experts/{name}": content},
            benchmark=benchmark.digest,
            work={},
            models={},
            tables={SCORES: schema},
        )
        write_json(folder / FACTS, said)


def accuracy_of_experts(runs: Mapping[str, Run], split: str = "reporting") -> dict[str, float]:
    """{task: accuracy of its own expert}, from what ``references`` gives; for normalized accuracy."""
    found = {}
    for name, run in runs.items():
        if run.kind == "expert" and run.scores is not None:
            rows = run.scores[(run.scores["task"] == name) & (run.scores["split"] == split)]
            if len(rows):
                found[name] = float(rows["accuracy"].iloc[0])
    return found
