"""Accuracy by the number of exemplars for methods that need them (LOT, Fig. 3a and Table 6; CAT, Table 3), and what is
lost where whole weights are merged in place of task vectors (LOT, Fig. 2): with few exemplars the Gram matrices do not
have full rank, and then such a merge alters the pretrained weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from merging.base.errors import TaskError, UnknownMethodError
from merging.engine.evaluation.evaluate import evaluate
from merging.images.benchmarks.benchmark import Benchmark
from merging.models.formats.model_sources import Source
from merging.recipes.recipe import Recipe
from merging.study.analysis.measurement_subject import MeasurementResult, PlannedTrial, Subject, TrialInputs
from merging.study.trials.trial_merges import merge_in_memory, plain_recipe, read_plain_recipe
from merging.tasks.context import Context

SPLIT = "reporting"
COUNTS = (1, 2, 4, 8, 16, 32, 64)  # exemplars per task
SEEDS = (0, 1, 2)  # draws of them
ROW = ("task", "title", "correct", "n", "accuracy")  # of the scores of a trial
ACCURACY = ("method", "exemplars", "seed", "task", "title", "correct", "n", "accuracy")
# What the layers of LOT are solved for, at scaling 1 and with the same cut-off (LOT, Eq. 9 and 19).
TASK_VECTORS, WHOLE_WEIGHTS = "task vectors", "whole weights"
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


def measure_sensitivity(subject: Subject, context: Context) -> MeasurementResult:
    """The tables "accuracy", "rank" and "weights", over all counts and seeds.

    "accuracy": in-domain accuracy of every registered candidate, a row per method, exemplars, seed and task. "rank": a
    row per exemplars and seed: full, the mean over layers of the share of input directions that LOT's Gram matrix
    Σ_k X_kᵀX_k has. "weights": in-domain accuracy of LOT's closed form for task vectors and for whole weights, and of
    each task's own expert: a row per ``solved`` (one of TASK_VECTORS, WHOLE_WEIGHTS, OWN), exemplars (0 for OWN), seed
    and task. Both forms take the same exemplars, cut-off and scaling 1, and differ by -(I - Π) θ₀ only (LOT, Eq. 20).

    Raises:
        TaskError: the benchmark has no expert.
    """
    benchmark = subject.benchmark
    if not benchmark.experts:
        raise TaskError("The benchmark has no experts, so there is nothing to merge.")
    draws = [(n, seed) for n in COUNTS for seed in SEEDS]
    methods = [SampledMerge(candidate, n, seed) for candidate in _registered_candidates(benchmark) for n, seed in draws]
    lot = {way: MethodCandidate(way, "lot", {"scaling": 1.0}) for way in (TASK_VECTORS, WHOLE_WEIGHTS)}
    solved = [SampledMerge(lot[way], n, seed, way == WHOLE_WEIGHTS) for n, seed in draws for way in lot]
    own = [PlannedTrial(f"{OWN}, {task}", {"own": task}, 0.2) for task in benchmark.experts]
    # Many exemplars take longest, but the evaluation, which is the same for all, takes longer still.
    answers = iter(subject.run_trials([*(work.plan_trial(benchmark) for work in (*methods, *solved)), *own]))
    of_methods = [(work, next(answers)) for work in methods]
    of_solved = [(work, next(answers)) for work in solved]
    accuracy = [work.rows("method", answer) for work, answer in of_methods]
    ranks = [(work.n, work.seed, answer["full"]) for work, answer in of_methods if answer["full"] is not None]
    weights = [_frame(answer).assign(solved=OWN, exemplars=0, seed=0) for answer in answers]
    weights += [work.rows("solved", answer) for work, answer in of_solved]
    tables = {
        "accuracy": pd.concat(accuracy, ignore_index=True)[list(ACCURACY)],
        "rank": pd.DataFrame(ranks, columns=["exemplars", "seed", "full"]),
        "weights": pd.concat(weights, ignore_index=True)[list(WEIGHTS)],
    }
    images = int(tables["accuracy"]["n"].max())
    return MeasurementResult(tables, {"split": SPLIT, "images": images, "seeds": len(SEEDS)})


class SampledMerge(NamedTuple):
    """A candidate with ``n`` exemplars per task, drawn with a seed."""

    candidate: MethodCandidate
    n: int
    seed: int
    whole_weights: bool = False

    def plan_trial(self, benchmark: Benchmark) -> PlannedTrial:
        """It as a trial on all experts of a benchmark."""
        recipe = plain_recipe(self.candidate.recipe(benchmark, self.n, self.seed))
        name = f"{self.candidate.label}, {self.n} per task, seed {self.seed}"
        return PlannedTrial(name, {"recipe": recipe, "whole_weights": self.whole_weights})

    def rows(self, labeled: str, answer: Mapping[str, Any]) -> pd.DataFrame:
        """The rows of a table for its answer, with its label in the column ``labeled``."""
        rows = _frame(answer).assign(exemplars=self.n, seed=self.seed)
        rows[labeled] = self.candidate.label
        return rows


def _frame(answer: Mapping[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(answer["rows"], columns=list(ROW))


def _registered_candidates(benchmark: Benchmark) -> list[MethodCandidate]:
    """The candidates whose methods are registered."""
    registered = []
    for candidate in CANDIDATES:
        try:
            candidate.recipe(benchmark, 1, 0)
        except UnknownMethodError:
            continue
        registered.append(candidate)
    return registered


def compute_trial(inputs: TrialInputs, request: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """The rows of scores of a merge in domain, or of a task's own expert; and what LOT's layers say of their ranks."""
    if "own" in request:
        task = str(request["own"])
        return {"rows": _score_rows(inputs.benchmark, inputs.benchmark.experts[task], [task], context)}
    parts = context.split({"merge": 1.0, "evaluate": 1.0})
    recipe = read_plain_recipe(inputs.benchmark, request["recipe"])
    merged = merge_in_memory(recipe, inputs.benchmark, parts["merge"], whole_weights=bool(request["whole_weights"]))
    rows = _score_rows(inputs.benchmark, merged.state_dict, list(inputs.benchmark.experts), parts["evaluate"])
    lot, full = merged.tables.get("lot"), None
    if lot is not None:
        lot = lot[lot["role"] != "norm_scale"]
        full = float(np.mean(lot["directions"] / lot["width"]))
    return {"rows": rows, "full": full}


def _score_rows(benchmark: Benchmark, model: Source, tasks: Sequence[str], context: Context) -> list[list[Any]]:
    scores = evaluate(model, benchmark, splits=(SPLIT,), tasks=tasks, context=context)
    return [list(row) for row in zip(*(scores[name].tolist() for name in ROW), strict=True)]


def split_losses(weights: pd.DataFrame) -> pd.DataFrame:
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


def average_accuracy(accuracy: pd.DataFrame) -> pd.DataFrame:
    """Per method, exemplars and seed: accuracy, its unweighted mean over the tasks; tasks; n, images in all."""
    groups = accuracy.groupby(["method", "exemplars", "seed"], sort=False)
    return groups.agg(accuracy=("accuracy", "mean"), tasks=("task", "nunique"), n=("n", "sum")).reset_index()
