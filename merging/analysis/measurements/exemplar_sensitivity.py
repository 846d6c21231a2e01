"""Accuracy by the number of exemplars for methods that need them (LOT, Fig. 3a and Table 6; CAT, Table 3), and what is
lost where whole weights are merged in place of task vectors (LOT, Fig. 2): with few exemplars the Gram matrices do not
have full rank, and then such a merge alters the pretrained weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from merging.analysis import trial_merges
from merging.analysis.context import FOLDER, MeasurementContext, MeasurementResult
from merging.benchmarks.benchmark import Benchmark
from merging.benchmarks.evaluate import evaluate
from merging.errors import TaskError, UnknownMethodError
from merging.files import atomic
from merging.formats.opening import Source
from merging.progress import Phases, ProgressCallback
from merging.recipes.recipe import Recipe
from merging.runs.execute import execute
from merging.runs.store import Store

SPLIT = "reporting"
COUNTS = (1, 2, 4, 8, 16, 32, 64)  # exemplars per task
SEEDS = (0, 1, 2)  # draws of them
ACCURACY = ("method", "exemplars", "seed", "task", "title", "correct", "n", "accuracy")
# What the layers of LOT are solved for, at scaling 1 and with the same cut-off (LOT, Eq. 9 and 19).
TASK_VECTORS, WHOLE_WEIGHTS = "task vectors", "whole weights"
METHODS = "methods"  # the phase before those of whole weights
OWN = "own experts"  # the models without a merge; their rows have no exemplars
WEIGHTS = ("solved", "exemplars", "seed", "task", "title", "correct", "n", "accuracy")


class MethodCandidate(NamedTuple):
    """A chain whose need for exemplars is measured."""

    label: str
    merge: str
    params: dict[str, Any]
    edits: tuple[str, ...] = ()

    def recipe(self, benchmark: Benchmark, per_task: int, seed: int) -> Recipe:
        """The chain on all experts of a benchmark; raises UnknownMethodError."""
        drawn = {"per_task": per_task, "seed": seed}
        return Recipe.build(
            self.merge, self.params, self.edits, benchmark.pretrained, benchmark.experts, self.label, drawn
        )


# RegMean twice: its default shrinks the entries off the diagonals, which gives a deficient Gram matrix full rank, too.
CANDIDATES = (
    MethodCandidate("LOT", "lot", {}),
    MethodCandidate("RegMean", "regmean", {}),
    MethodCandidate("RegMean, α = 1", "regmean", {"alpha": 1.0}),
    MethodCandidate("CAT", "task_arithmetic", {}, ("cat",)),
    MethodCandidate("TATR", "task_arithmetic", {}, ("tatr",)),
)


def measure_sensitivity(context: MeasurementContext) -> MeasurementResult:
    """The tables "accuracy" and "rank" of ``sensitivity`` and "weights" of ``solved``, over all counts and seeds."""
    phases = context.phases({METHODS: float(len(CANDIDATES)), WHOLE_WEIGHTS: 2.0})
    accuracy, rank = sensitivity(context, COUNTS, SEEDS, phases.callback(METHODS))
    weights = solved(context, COUNTS, SEEDS, phases.callback(WHOLE_WEIGHTS))
    notes = {"split": SPLIT, "images": int(accuracy["n"].max()), "seeds": len(SEEDS)}
    return MeasurementResult({"accuracy": accuracy, "rank": rank, "weights": weights}, notes)


def sensitivity(
    context: MeasurementContext,
    counts: Sequence[int],
    seeds: Sequence[int],
    progress: ProgressCallback | None = None,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """In-domain accuracy of every registered candidate for every number of exemplars and every draw of them.

    The first table has a row per method, exemplars, seed and task. The second has a row per exemplars and seed: full,
    the mean over layers of the share of input directions that LOT's Gram matrix Σ_k X_kᵀX_k has.

    Raises:
        TaskError: the benchmark has no expert.
    """
    benchmark = context.benchmark
    if not benchmark.experts:
        raise TaskError("The benchmark has no experts, so there is nothing to merge.")
    # Many exemplars take longest, but the evaluation, which is the same for all, takes longer still.
    work = [(c, n, seed) for c in _registered(benchmark) for n in counts for seed in seeds]
    names = [f"{c.label}, {n} per task, seed {seed}" for c, n, seed in work]
    phases = Phases(dict.fromkeys(names, 1.0), progress)
    frames, ranks = [], []
    for name, (candidate, n, seed) in zip(names, work, strict=True):
        scores, lot = _one(context, candidate.recipe(benchmark, n, seed), phases.callback(name))
        frames.append(scores.assign(method=candidate.label, exemplars=n, seed=seed)[list(ACCURACY)])
        if lot is not None:
            ranks.append((n, seed, float(np.mean(lot["directions"] / lot["width"]))))
    return pd.concat(frames, ignore_index=True), pd.DataFrame(ranks, columns=["exemplars", "seed", "full"])


def _registered(benchmark: Benchmark) -> list[MethodCandidate]:
    """The candidates whose methods are registered."""
    registered = []
    for candidate in CANDIDATES:
        try:
            candidate.recipe(benchmark, 1, 0)
        except UnknownMethodError:
            continue
        registered.append(candidate)
    return registered


def _one(
    context: MeasurementContext, recipe: Recipe, progress: ProgressCallback | None
) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    """Merge, evaluate in domain, drop the model: the scores, and LOT's table about its layers."""
    inner = Phases({"merge": 1.0, "evaluate": 1.0}, progress)
    folder = atomic.make_temporary(context.store.root / FOLDER)
    try:
        run = execute(
            recipe,
            Store(folder, libraries=()),
            benchmark=context.benchmark,
            device=context.device,
            progress=inner.callback("merge"),
            cancel=context.cancel,
            evaluate=False,
        )
        assert run.model_path is not None  # it was merged just now, and none of the candidates gives several models
        scores = _scored(context, run.model_path, list(context.benchmark.experts), inner.callback("evaluate"))
        lot = run.table("lot") if "lot" in run.tables else None
    finally:
        atomic.drop(folder)
    return scores, None if lot is None else lot[lot["role"] != "norm_scale"]


def _scored(
    context: MeasurementContext, model: Source, tasks: Sequence[str], progress: ProgressCallback | None
) -> pd.DataFrame:
    return evaluate(
        model, context.benchmark, splits=(SPLIT,), tasks=tasks, device=context.device, progress=progress,
        cancel=context.cancel,
    )  # fmt: skip


def solved(
    context: MeasurementContext,
    counts: Sequence[int],
    seeds: Sequence[int],
    progress: ProgressCallback | None = None,
) -> pd.DataFrame:
    """In-domain accuracy of LOT's closed form for task vectors and for whole weights, and of each task's own expert.

    Both take the same exemplars, cut-off and scaling 1, and differ by -(I - Π) θ₀ only (LOT, Eq. 20). A row per
    ``solved`` (one of TASK_VECTORS, WHOLE_WEIGHTS, OWN), exemplars (0 for OWN), seed and task.
    """
    experts = context.benchmark.experts
    ways = {TASK_VECTORS: False, WHOLE_WEIGHTS: True}
    work = [(way, n, seed) for n in counts for seed in seeds for way in ways]
    phases = Phases(dict.fromkeys(experts, 0.2) | {str(place): 1.0 for place in range(len(work))}, progress)
    own = [_scored(context, expert, [task], phases.callback(task)) for task, expert in experts.items()]
    frames = [rows.assign(solved=OWN, exemplars=0, seed=0) for rows in own]
    for place, (way, n, seed) in enumerate(work):
        recipe = MethodCandidate(way, "lot", {"scaling": 1.0}).recipe(context.benchmark, n, seed)
        inner = Phases({"merge": 1.0, "evaluate": 1.0}, phases.callback(str(place)))
        merged = trial_merges.merge(context, recipe, inner.callback("merge"), whole_weights=ways[way])
        rows = _scored(context, merged, list(experts), inner.callback("evaluate"))
        frames.append(rows.assign(solved=way, exemplars=n, seed=seed))
    return pd.concat(frames, ignore_index=True)[list(WEIGHTS)]


def losses(weights: pd.DataFrame) -> pd.DataFrame:
    """What merging whole weights loses against the own experts, split in two, from the table "weights" of ``solved``.

    A row per exemplars and seed: ``altered`` is the mean accuracy over tasks that is lost by altering the pretrained
    weights (task vectors minus whole weights), ``fused`` what merging task vectors loses already (own experts minus
    task vectors), ``lost`` the sum; all as fractions. ``n`` is the number of images of all tasks.
    """
    means = weights.groupby(["solved", "exemplars", "seed"])["accuracy"].mean()
    own, n = float(means[OWN].iloc[0]), int(weights[weights["solved"] == OWN]["n"].sum())
    wide = pd.DataFrame({"vectors": means[TASK_VECTORS], "weights": means[WHOLE_WEIGHTS]}).reset_index()
    parts = wide.assign(altered=wide["vectors"] - wide["weights"], fused=own - wide["vectors"])
    return parts.assign(lost=own - wide["weights"], n=n)[["exemplars", "seed", "altered", "fused", "lost", "n"]]


def averages(accuracy: pd.DataFrame) -> pd.DataFrame:
    """Per method, exemplars and seed: accuracy, its unweighted mean over the tasks; tasks; n, images in all."""
    groups = accuracy.groupby(["method", "exemplars", "seed"], sort=False)
    return groups.agg(accuracy=("accuracy", "mean"), tasks=("task", "nunique"), n=("n", "sum")).reset_index()
