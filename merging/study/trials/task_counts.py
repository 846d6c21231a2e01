"""Accuracy by the number of merged experts (DRM, Fig. 2), and paired t-tests between methods (DRM, Table 5)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from torch import Tensor

from merging.base.devices import choose_device
from merging.base.errors import TaskError
from merging.engine.evaluation.image_features import compute_features, predict
from merging.images.benchmarks.answers import pack_correctness
from merging.images.benchmarks.benchmark import Benchmark
from merging.images.image_encoder import Encoder
from merging.models.formats.model_sources import Source, open_checkpoint
from merging.recipes.presets import find_preset
from merging.study.analysis.measurement_subject import MeasurementResult, PlannedTrial, Subject, TrialInputs
from merging.study.trials.row_answers import RIGHT, split_answers
from merging.study.trials.trial_merges import merge_in_memory, plain_recipe, read_plain_recipe
from merging.tasks.context import Context

SPLIT = "reporting"
MAX_IMAGES = 160  # in the seeded sample of a task; few, since hundreds of models are evaluated
MAX_SUBSETS = 10  # of each size
SEED = 0
# Presets, with the same parameters at every size. TIES and DARE-TIES have the disjoint mean, as in the paper's figure.
PRESETS = (
    "weight_averaging", "task_arithmetic", "ties_mean", "dare_ties", "drm_h", "drm_v", "task_arithmetic_lwptv", "tsv_m",
)  # fmt: skip
REFERENCE_TITLE = find_preset("drm_h").title  # the method that the paper compares with all others
COUNT_COLUMNS = ("method", "size", "subset", "task", "correct", "n", RIGHT)
EXPERT_COLUMNS = ("task", "title", "correct", "n")
TEST_COLUMNS = ("method", "size", "pairs", "difference", "t", "p")
Subset = tuple[str, ...]


class TaskImages(NamedTuple):
    """Preprocessed images (n, 3, h, w) of a task, their labels (n,), and its head (classes, d)."""

    images: Tensor
    labels: Any
    head: Tensor


def sample_subsets(names: Sequence[str], size: int, max_subsets: int = MAX_SUBSETS, seed: int = SEED) -> list[Subset]:
    """Distinct subsets of ``size`` names, in the order of the names: all, or a seeded sample of ``max_subsets``."""
    subset_count = math.comb(len(names), size)
    generator = np.random.default_rng([seed, size])
    sampled: set[tuple[int, ...]] = set()
    while len(sampled) < min(max_subsets, subset_count):
        sampled.add(tuple(sorted(generator.choice(len(names), size, replace=False).tolist())))
    return [tuple(names[index] for index in indices) for indices in sorted(sampled)]


def measure_counts(subject: Subject, context: Context) -> MeasurementResult:
    """The tables of correct answers: "counts" by method, size, subset and merged task, and "experts" by expert.

    A method merges each subset once and is evaluated on the merged tasks only; all methods get the same subsets and the
    same images.

    Raises:
        TaskError: fewer than two experts. CheckpointError: a checkpoint cannot be read. Cancelled.
    """
    benchmark = subject.benchmark
    names = list(benchmark.experts)
    if len(names) < 2:
        raise TaskError("The number of tasks can only be varied if the benchmark has two experts or more.")
    subsets = [subset for size in range(2, len(names) + 1) for subset in sample_subsets(names, size)]
    expert_trials = [PlannedTrial(f"expert of {task}", {"own": task}) for task in names]
    merges = [(number, subset, key) for number, subset in enumerate(subsets) for key in PRESETS]
    answers = subject.run_trials([*expert_trials, *(_plan_trial(benchmark, subset, key) for _, subset, key in merges)])
    images = [answer["n"][0] for answer in answers[: len(expert_trials)]]
    experts = [
        (task, benchmark.find_task(task).title, answer["correct"][0], n)
        for task, answer, n in zip(names, answers[: len(expert_trials)], images, strict=True)
    ]
    counts = [
        (find_preset(key).title, len(subset), number, task, correct, n, right)
        for (number, subset, key), answer in zip(merges, answers[len(expert_trials) :], strict=True)
        for task, correct, n, right in zip(subset, answer["correct"], answer["n"], answer[RIGHT], strict=True)
    ]
    notes = {"split": SPLIT, "images": max(images), "seed": SEED, "subsets": len(subsets), "most": MAX_SUBSETS}
    tables = {
        **split_answers("counts", pd.DataFrame(counts, columns=list(COUNT_COLUMNS))),
        "experts": pd.DataFrame(experts, columns=list(EXPERT_COLUMNS)),
    }
    return MeasurementResult(tables, notes)


def _plan_trial(benchmark: Benchmark, subset: Subset, key: str) -> PlannedTrial:
    recipe = find_preset(key).recipe(benchmark.pretrained, {name: benchmark.experts[name] for name in subset})
    return PlannedTrial(f"{key} of {' + '.join(subset)}", {"recipe": plain_recipe(recipe)}, float(len(subset)))


def compute_trial(inputs: TrialInputs, request: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """Correct answers and numbers of images: of a merge on its merged tasks, or of an expert on its own task."""
    if "own" in request:
        return _count_correct(inputs, inputs.benchmark.experts[request["own"]], [request["own"]], context)
    recipe = read_plain_recipe(inputs.benchmark, request["recipe"])
    parts = context.split({"merge": 1.0, "evaluate": 1.0})
    merged = merge_in_memory(recipe, inputs.benchmark, parts["merge"])
    return _count_correct(inputs, merged.state_dict, [name for name, _ in recipe.experts], parts["evaluate"])


def _count_correct(inputs: TrialInputs, model: Source, tasks: Sequence[str], context: Context) -> dict[str, Any]:
    """{"correct": [...], "n": [...], "right": [...]}, by task: correct answers, images, and the packed answers."""
    images = [_load_task_images(inputs, task) for task in tasks]
    encoder = Encoder.from_checkpoint(
        open_checkpoint(model), choose_device(context.device), fallback=inputs.benchmark.pretrained_tower
    )
    meter = context.meter(sum(len(task.labels) for task in images))
    right = []
    for name, task in zip(tasks, images, strict=True):
        feature_rows = compute_features(
            encoder, task.images, meter, "Evaluating", inputs.benchmark.find_task(name).title
        )
        right.append(predict(feature_rows, task.head) == task.labels)
    return {
        "correct": [int(answers.sum()) for answers in right],
        "n": [len(task.labels) for task in images],
        RIGHT: [pack_correctness({name: answers}) for name, answers in zip(tasks, right, strict=True)],
    }


def _load_task_images(inputs: TrialInputs, task: str) -> TaskImages:
    """The sampled images of a task, which stay in memory for the next model."""
    if task not in inputs.cache:
        benchmark = inputs.benchmark
        images, labels = benchmark.load_images(task, SPLIT)
        indices = np.sort(np.random.default_rng(SEED).permutation(len(images))[:MAX_IMAGES])
        inputs.cache[task] = TaskImages(
            benchmark.preprocess(images[indices]), labels[indices], benchmark.load_head(task)
        )
    cached: TaskImages = inputs.cache[task]
    return cached


def average_counts(counts: pd.DataFrame, experts: pd.DataFrame) -> pd.DataFrame:
    """Per method, size and subset: accuracy and normalized (unweighted means over the merged tasks), tasks, n (images).

    normalized is the accuracy divided by the expert's on the same images; tasks with an expert at zero are left out.
    """
    by_task = experts.set_index("task")
    rows = counts.assign(accuracy=counts["correct"] / counts["n"], title=counts["task"].map(by_task["title"]))
    expert_accuracy = rows["task"].map(by_task["correct"] / by_task["n"])
    rows["normalized"] = rows["accuracy"] / expert_accuracy.where(expert_accuracy > 0)
    groups = rows.groupby(["method", "size", "subset"], sort=False)
    means = groups.agg(
        accuracy=("accuracy", "mean"), normalized=("normalized", "mean"), tasks=("title", " + ".join), n=("n", "sum")
    )
    return pd.DataFrame(means).reset_index()


def paired_tests(table: pd.DataFrame, reference: str = REFERENCE_TITLE, value: str = "accuracy") -> pd.DataFrame:
    """Paired t-tests over subsets, by size, that compare the reference with every other method of ``average_counts``.

    A row per method and size: pairs, difference (the mean of the reference's value minus the method's), t, and the
    one-sided p: the chance of at least this t if both were equal. NaN for fewer than two pairs or equal differences.
    """
    import scipy.stats

    rows: list[tuple[str, int, int, float, float, float]] = []
    for size, group in table.groupby("size", sort=True):
        wide = group.pivot(index="subset", columns="method", values=value)
        for method in [name for name in dict.fromkeys(table["method"]) if name != reference]:
            differences = (wide[reference] - wide[method]).dropna().to_numpy(np.float64)
            t = p = math.nan
            if len(differences) > 1 and np.ptp(differences) > 0:
                t, p = scipy.stats.ttest_1samp(differences, 0.0, alternative="greater")
            mean = float(differences.mean()) if len(differences) else math.nan
            rows.append((str(method), int(str(size)), len(differences), mean, float(t), float(p)))
    return pd.DataFrame(rows, columns=list(TEST_COLUMNS))
