"""Accuracy by the number of exemplars for methods that need them (LOT, Fig. 3a and Table 6; CAT, Table 3).

Also the accuracy lost if whole weights are merged instead of task vectors (LOT, Fig. 2): with few exemplars the Gram
matrices lack full rank, and such a merge alters the pretrained weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from merging.base.errors import TaskError, UnknownMethodError
from merging.engine.evaluation.evaluate import evaluate_answers
from merging.images.benchmarks.answers import pack_correctness
from merging.images.benchmarks.benchmark import Benchmark
from merging.models.formats.model_sources import Source
from merging.recipes.recipe import Recipe
from merging.study.analysis.measurement_subject import MeasurementResult, PlannedTrial, Subject, TrialInputs
from merging.study.trials.row_answers import RIGHT, split_answers
from merging.study.trials.trial_merges import merge_in_memory, plain_recipe, read_plain_recipe
from merging.tasks.context import Context

SPLIT = "reporting"
COUNTS = (1, 2, 4, 8, 16, 32, 64)  # exemplars per task
SEEDS = (0, 1, 2)  # of the samples of exemplars
SCORE_COLUMNS = ("task", "title", "correct", "n", "accuracy", RIGHT)  # of the scores of a trial
ACCURACY_COLUMNS = ("method", "exemplars", "seed", "task", "title", "correct", "n", "accuracy", RIGHT)
# The quantities that LOT's layers are solved for, at scaling 1 and with the same cut-off (LOT, Eq. 9 and 19).
TASK_VECTORS, WHOLE_WEIGHTS = "task vectors", "whole weights"
OWN_EXPERTS = "own experts"  # each task's expert, without a merge and without exemplars
WEIGHTS_COLUMNS = ("solved", "exemplars", "seed", "task", "title", "correct", "n", "accuracy", RIGHT)


class MethodCandidate(NamedTuple):
    """A chain whose need for exemplars is measured."""

    label: str
    merge: str
    params: dict[str, Any]
    edits: tuple[str, ...] = ()

    def build_recipe(self, benchmark: Benchmark, per_task: int, seed: int) -> Recipe:
        """The chain on all experts of a benchmark; raises UnknownMethodError."""
        exemplars = {"per_task": per_task, "seed": seed}
        return Recipe.build(
            self.merge, self.params, self.edits, benchmark.pretrained, benchmark.experts, self.label, exemplars
        )


# RegMean twice, since its default shrinks entries off the diagonals, which gives a deficient Gram matrix full rank.
CANDIDATES = (
    MethodCandidate("LOT", "lot", {}),
    MethodCandidate("RegMean", "regmean", {}),
    MethodCandidate("RegMean, α = 1", "regmean", {"alpha": 1.0}),
    MethodCandidate("CAT", "task_arithmetic", {}, ("cat",)),
    MethodCandidate("TATR", "task_arithmetic", {}, ("tatr",)),
)


def measure_sensitivity(subject: Subject, context: Context) -> MeasurementResult:
    """The tables "accuracy", "rank" and "weights", over all counts and seeds, with their answers (``row_answers``).

    "accuracy": in-domain accuracy of every registered candidate, a row per method, exemplars, seed and task. "rank": a
    row per exemplars and seed; full is the mean over layers of the share of input directions that LOT's Gram matrix
    Σ_k X_kᵀX_k spans. "weights": in-domain accuracy of LOT's closed form for task vectors and for whole weights, and of
    each task's own expert: a row per solved (``TASK_VECTORS``, ``WHOLE_WEIGHTS`` or ``OWN_EXPERTS``), exemplars (0 for
    own experts), seed and task. Both forms have the same exemplars, cut-off and scaling 1, and differ only by
    -(I - Π) θ₀, where Π projects onto the input directions of the exemplars (LOT, Eq. 20).

    Raises:
        TaskError: the benchmark has no expert.
    """
    benchmark = subject.benchmark
    if not benchmark.experts:
        raise TaskError("The benchmark has no experts, so there is nothing to merge.")
    samples = [(n, seed) for n in COUNTS for seed in SEEDS]
    candidates = _list_registered_candidates(benchmark)
    method_merges = [SampledMerge(candidate, n, seed) for candidate in candidates for n, seed in samples]
    lot = {form: MethodCandidate(form, "lot", {"scaling": 1.0}) for form in (TASK_VECTORS, WHOLE_WEIGHTS)}
    form_merges = [SampledMerge(lot[form], n, seed, form == WHOLE_WEIGHTS) for n, seed in samples for form in lot]
    merges = [*method_merges, *form_merges]
    expert_trials = [PlannedTrial(f"{OWN_EXPERTS}, {task}", {"own": task}, 0.2) for task in benchmark.experts]
    # All merges have the same weight, since their evaluation takes longer than even many exemplars. An expert has less,
    # since it is evaluated on one task only.
    answers = subject.run_trials([*(merge.plan_trial(benchmark) for merge in merges), *expert_trials])
    answered_merges = list(zip(merges, answers[: len(merges)], strict=True))
    of_methods, of_forms = answered_merges[: len(method_merges)], answered_merges[len(method_merges) :]
    accuracy = [merge.build_rows("method", answer) for merge, answer in of_methods]
    ranks = [(merge.n, merge.seed, answer["full"]) for merge, answer in of_methods if answer["full"] is not None]
    weights = [
        _build_frame(answer).assign(solved=OWN_EXPERTS, exemplars=0, seed=0) for answer in answers[len(merges) :]
    ]
    weights += [merge.build_rows("solved", answer) for merge, answer in of_forms]
    tables = {
        **split_answers("accuracy", pd.concat(accuracy, ignore_index=True)[list(ACCURACY_COLUMNS)]),
        "rank": pd.DataFrame(ranks, columns=["exemplars", "seed", "full"]),
        **split_answers("weights", pd.concat(weights, ignore_index=True)[list(WEIGHTS_COLUMNS)]),
    }
    images = int(tables["accuracy"]["n"].max())
    return MeasurementResult(tables, {"split": SPLIT, "images": images, "seeds": len(SEEDS)})


class SampledMerge(NamedTuple):
    """A candidate with ``n`` exemplars per task, sampled with a seed."""

    candidate: MethodCandidate
    n: int
    seed: int
    whole_weights: bool = False

    def plan_trial(self, benchmark: Benchmark) -> PlannedTrial:
        """The merge as a trial on all experts of a benchmark."""
        recipe = plain_recipe(self.candidate.build_recipe(benchmark, self.n, self.seed))
        name = f"{self.candidate.label}, {self.n} per task, seed {self.seed}"
        return PlannedTrial(name, {"recipe": recipe, "whole_weights": self.whole_weights})

    def build_rows(self, label_column: str, answer: Mapping[str, Any]) -> pd.DataFrame:
        """The rows of a table for the trial's answer, with the candidate's label in the column ``label_column``."""
        rows = _build_frame(answer).assign(exemplars=self.n, seed=self.seed)
        rows[label_column] = self.candidate.label
        return rows


def _build_frame(answer: Mapping[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(answer["rows"], columns=list(SCORE_COLUMNS))


def _list_registered_candidates(benchmark: Benchmark) -> list[MethodCandidate]:
    """The candidates whose methods are registered."""
    registered = []
    for candidate in CANDIDATES:
        try:
            candidate.build_recipe(benchmark, 1, 0)
        except UnknownMethodError:
            continue
        registered.append(candidate)
    return registered


def compute_trial(inputs: TrialInputs, request: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """The in-domain scores of a merge, with the ranks of LOT's layers if it has any; or those of a task's expert."""
    if "own" in request:
        task = str(request["own"])
        return {"rows": _evaluate_rows(inputs.benchmark, inputs.benchmark.experts[task], [task], context)}
    parts = context.split({"merge": 1.0, "evaluate": 1.0})
    recipe = read_plain_recipe(inputs.benchmark, request["recipe"])
    merged = merge_in_memory(recipe, inputs.benchmark, parts["merge"], whole_weights=bool(request["whole_weights"]))
    rows = _evaluate_rows(inputs.benchmark, merged.state_dict, list(inputs.benchmark.experts), parts["evaluate"])
    lot, full = merged.tables.get("lot"), None
    if lot is not None:
        lot = lot[lot["role"] != "norm_scale"]
        full = float(np.mean(lot["directions"] / lot["width"]))
    return {"rows": rows, "full": full}


def _evaluate_rows(benchmark: Benchmark, model: Source, tasks: Sequence[str], context: Context) -> list[list[Any]]:
    evaluation = evaluate_answers(model, benchmark, splits=(SPLIT,), tasks=tasks, context=context)
    right = {task: pack_correctness({task: answers}) for task, answers in evaluation.correctness.items()}
    scores = evaluation.scores.assign(**{RIGHT: evaluation.scores["task"].map(right)})
    return [list(row) for row in zip(*(scores[name].tolist() for name in SCORE_COLUMNS), strict=True)]


def split_losses(weights: pd.DataFrame) -> pd.DataFrame:
    """The accuracy that merging whole weights loses relative to the own experts, in two parts, from "weights".

    A row per exemplars and seed; losses are means over tasks, as fractions. altered is the loss by altering the
    pretrained weights (task vectors minus whole weights), fused the loss by merging task vectors (own experts minus
    task vectors), and lost is the sum of both. n is the number of images of all tasks.
    """
    means = weights.groupby(["solved", "exemplars", "seed"])["accuracy"].mean()
    expert_accuracy, n = float(means[OWN_EXPERTS].iloc[0]), int(weights[weights["solved"] == OWN_EXPERTS]["n"].sum())
    wide = pd.DataFrame({"vectors": means[TASK_VECTORS], "weights": means[WHOLE_WEIGHTS]}).reset_index()
    parts = wide.assign(altered=wide["vectors"] - wide["weights"], fused=expert_accuracy - wide["vectors"])
    return parts.assign(lost=expert_accuracy - wide["weights"], n=n)[
        ["exemplars", "seed", "altered", "fused", "lost", "n"]
    ]


def average_accuracy(accuracy: pd.DataFrame) -> pd.DataFrame:
    """Per method, exemplars and seed: accuracy (the unweighted mean over tasks), tasks, and n (images of all tasks)."""
    groups = accuracy.groupby(["method", "exemplars", "seed"], sort=False)
    return groups.agg(accuracy=("accuracy", "mean"), tasks=("task", "nunique"), n=("n", "sum")).reset_index()
