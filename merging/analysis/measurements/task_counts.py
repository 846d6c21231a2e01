"""Accuracy by the number of merged experts (DRM, Fig. 2), and paired t-tests between methods (DRM, Table 5)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from torch import Tensor

from merging.analysis.context import MeasurementContext, MeasurementResult
from merging.analysis.trial_merges import merge
from merging.benchmarks.image_features import features, predict
from merging.clip.image_encoder import Encoder
from merging.devices import choose_device
from merging.errors import TaskError
from merging.formats.opening import Source, open_checkpoint
from merging.progress import Meter, Phases, ProgressCallback
from merging.recipes.presets import preset

SPLIT = "reporting"
IMAGES = 160  # per task, a seeded draw: hundreds of models are evaluated
SUBSETS = 10  # per size at most
SEED = 0
# Presets, with the same parameters at every size. TIES and DARE-TIES are those with the disjoint mean, as in the
# paper's figure.
METHODS = (
    "weight_averaging", "task_arithmetic", "ties_mean", "dare_ties", "drm_h", "drm_v", "task_arithmetic_lwptv", "tsv_m",
)  # fmt: skip
REFERENCE = preset("drm_h").title  # the method that the paper tests the others against
COUNTS = ("method", "size", "subset", "task", "correct", "n")
OWN = ("task", "title", "correct", "n")
TESTS = ("method", "size", "pairs", "difference", "t", "p")
EXPERTS = "experts"  # the phase before the merges
Subset = tuple[str, ...]


class TaskImages(NamedTuple):
    """Preprocessed images (n, 3, h, w) of a task, their labels (n,), and its head."""

    images: Tensor
    labels: Any
    head: Tensor


def subsets(names: Sequence[str], size: int, most: int = SUBSETS, seed: int = SEED) -> list[Subset]:
    """Distinct subsets of that size in the order of the names: all of them, or a seeded draw of ``most``."""
    count = math.comb(len(names), size)
    draw = np.random.default_rng([seed, size])
    drawn: set[tuple[int, ...]] = set()
    while len(drawn) < min(most, count):
        drawn.add(tuple(sorted(draw.choice(len(names), size, replace=False).tolist())))
    return [tuple(names[place] for place in places) for places in sorted(drawn)]


def measure_counts(context: MeasurementContext) -> MeasurementResult:
    """The tables "counts", correct answers by method, size, subset and merged task, and "experts", those of experts.

    A method merges each subset once and is evaluated on the merged tasks only; all methods get the same subsets and the
    same images.

    Raises:
        TaskError: fewer than two experts. CheckpointError: a checkpoint cannot be read. Cancelled: on request.
    """
    benchmark = context.benchmark
    names = list(benchmark.experts)
    if len(names) < 2:
        raise TaskError("The number of tasks can only be varied where the benchmark has two experts or more.")
    work = [chosen for size in range(2, len(names) + 1) for chosen in subsets(names, size)]
    phases = context.phases(
        {EXPERTS: float(len(names))} | {_named(chosen): float(len(METHODS) * len(chosen)) for chosen in work}
    )
    images = {task: _show(context, task) for task in names}
    own = _experts(context, images, phases.callback(EXPERTS))
    frames = [_one(context, number, chosen, images, phases) for number, chosen in enumerate(work)]
    notes = {
        "split": SPLIT, "images": max(len(task.labels) for task in images.values()), "seed": SEED,
        "subsets": len(work), "most": SUBSETS,
    }  # fmt: skip
    return MeasurementResult({"counts": pd.concat(frames, ignore_index=True), "experts": own}, notes)


def _named(chosen: Subset) -> str:
    return " + ".join(chosen)


def _show(context: MeasurementContext, task: str) -> TaskImages:
    benchmark = context.benchmark
    images, labels = benchmark.images(task, SPLIT)
    drawn = np.sort(np.random.default_rng(SEED).permutation(len(images))[:IMAGES])
    return TaskImages(benchmark.preprocess(images[drawn]), labels[drawn], benchmark.head(task))


def _experts(
    context: MeasurementContext, images: Mapping[str, TaskImages], progress: ProgressCallback | None
) -> pd.DataFrame:
    """Correct answers of each expert on the same images of its own task."""
    phases, rows = Phases(dict.fromkeys(images, 1.0), progress), []
    for task, reference in context.benchmark.experts.items():
        correct = _correct(context, reference, {task: images[task]}, phases.callback(task))[task]
        rows.append((task, context.benchmark.task(task).title, correct, len(images[task].labels)))
    return pd.DataFrame(rows, columns=list(OWN))


def _one(
    context: MeasurementContext, number: int, chosen: Subset, images: Mapping[str, TaskImages], phases: Phases
) -> pd.DataFrame:
    """Every method on one subset; ``number`` is the subset's index in the table."""
    benchmark, rows = context.benchmark, []
    inner = Phases(dict.fromkeys(METHODS, 1.0), phases.callback(_named(chosen)))
    experts = {name: benchmark.experts[name] for name in chosen}
    merged_tasks = {task: images[task] for task in chosen}
    for key in METHODS:
        recipe = preset(key).recipe(benchmark.pretrained, experts)
        steps = Phases({"merge": 1.0, "evaluate": 1.0}, inner.callback(key))
        merged = merge(context, recipe, steps.callback("merge"))
        correct = _correct(context, merged, merged_tasks, steps.callback("evaluate"))
        rows += [
            (recipe.title, len(chosen), number, task, correct[task], len(merged_tasks[task].labels)) for task in chosen
        ]
    return pd.DataFrame(rows, columns=list(COUNTS))


def _correct(
    context: MeasurementContext, model: Source, images: Mapping[str, TaskImages], progress: ProgressCallback | None
) -> dict[str, int]:
    """Correct answers of a model by task."""
    encoder = Encoder.of(open_checkpoint(model), choose_device(context.device), like=context.benchmark.tower)
    meter = Meter(sum(len(task.labels) for task in images.values()), progress, context.cancel)
    correct = {}
    for name, task in images.items():
        feature_rows = features(encoder, task.images, meter, "Evaluating", context.benchmark.task(name).title)
        correct[name] = int((predict(feature_rows, task.head) == task.labels).sum())
    return correct


def averages(counts: pd.DataFrame, experts: pd.DataFrame) -> pd.DataFrame:
    """Per method, size and subset: accuracy and normalized, unweighted means over the merged tasks; tasks; n images.

    Normalized is accuracy over the expert's own on the same images; tasks whose expert has none right are left out.
    """
    own = experts.set_index("task")
    rows = counts.assign(accuracy=counts["correct"] / counts["n"], title=counts["task"].map(own["title"]))
    expert = rows["task"].map(own["correct"] / own["n"])
    rows["normalized"] = rows["accuracy"] / expert.where(expert > 0)
    groups = rows.groupby(["method", "size", "subset"], sort=False)
    means = groups.agg(
        accuracy=("accuracy", "mean"), normalized=("normalized", "mean"), tasks=("title", " + ".join), n=("n", "sum")
    )
    return pd.DataFrame(means).reset_index()


def paired_tests(table: pd.DataFrame, reference: str = REFERENCE, value: str = "accuracy") -> pd.DataFrame:
    """Paired t-tests over subsets, by size, of the reference against every other method of ``averages``.

    A row per method and size: pairs; difference, the mean of the reference's value minus the method's; t; p, one-sided:
    the chance of such a t or a larger one if the two were equal. NaN below two pairs and where all pairs are equal.
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
    return pd.DataFrame(rows, columns=list(TESTS))
