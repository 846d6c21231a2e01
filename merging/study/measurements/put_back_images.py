"""The images on which the true map and the first-order map are measured: those of a preview, so that all agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from merging.base.errors import TaskError
from merging.engine.evaluation.image_features import cosine_margins
from merging.engine.outputs import MERGED
from merging.images.benchmarks.paired_scores import AVERAGE, IN_DOMAIN, OUT_OF_DOMAIN
from merging.study.previews.preview_samples import BATCH_SIZE, HALF, PreviewSample, sample_tasks

if TYPE_CHECKING:
    from merging.engine.evaluation.evaluate import EvaluatedModel
    from merging.images.benchmarks.benchmark import Benchmark
    from merging.models.checkpoint import Checkpoint
    from merging.study.analysis.measurement_subject import Subject

SAMPLE = PreviewSample(32)  # images of every task; a preview of this size has the same ones


def list_evaluated_models(models: Mapping[str, Checkpoint], subject: Subject) -> list[EvaluatedModel]:
    """The models of a run, each with its data sets. Raises TaskError if the benchmark's images do not fit them."""
    from merging.engine.evaluation.evaluate import EvaluatedModel, list_task_models

    benchmark = subject.benchmark
    if reason := benchmark.describe_misfit(next(iter(models.values()))):
        raise TaskError(f"The run cannot be measured on this benchmark: {reason}")
    features = subject.store.features_folder(subject.run_id)
    if subject.store.get_run(subject.run_id).per_task:
        return list_task_models(models, benchmark, features)
    return [EvaluatedModel("", models[MERGED], [task.key for task in benchmark.tasks], subject.modules, features)]


@dataclass(frozen=True)
class SampleImages:
    """The sample of one task: preprocessed images (n, 3, h, w), labels (n,), and the task's head (classes, d)."""

    images: Tensor
    labels: NDArray[np.int64]
    head: Tensor

    def margins(self, features: Tensor) -> Tensor:
        """By how much the cosine of the right class exceeds the largest other one (n,), from features (n, d)."""
        return cosine_margins(features, self.head, torch.from_numpy(self.labels))


SampleByTask = dict[str, SampleImages]  # by task


def sample_images(benchmark: Benchmark) -> SampleByTask:
    """The sample of every task that has images."""
    return {
        task.key: SampleImages(benchmark.preprocess(task.images[:]), task.labels, benchmark.load_head(task.key))
        for task in sample_tasks(benchmark, SAMPLE).values()
        if len(task.labels)
    }


def image_batches(sample: SampleByTask, tasks: Sequence[str]) -> list[Tensor]:
    """The images of these tasks, concatenated, in batches (b, 3, h, w)."""
    return list(torch.cat([sample[task].images for task in tasks]).split(BATCH_SIZE))


def split_by_task(rows: Tensor, sample: SampleByTask, tasks: Sequence[str]) -> dict[str, Tensor]:
    """{task: its rows (n_k, *S)}: the rows (n, *S) for all images of ``image_batches``, split by task."""
    sizes = [len(sample[task].labels) for task in tasks]
    return dict(zip(tasks, rows.split(sizes), strict=True))


def average_tasks(by_task: Mapping[str, Any], in_domain: Sequence[str]) -> dict[tuple[str, str], Any]:
    """{(over, group): number or array (*S)}: means over the tasks in domain and out of domain, then every task's own.

    The names are those of ``compare_models``; a domain without tasks is left out.
    """
    groups = {
        IN_DOMAIN: [task_key for task_key in by_task if task_key in in_domain],
        OUT_OF_DOMAIN: [task_key for task_key in by_task if task_key not in in_domain],
    }
    means = {
        (name, AVERAGE): np.mean([by_task[task_key] for task_key in tasks], axis=0)
        for name, tasks in groups.items()
        if tasks
    }
    return means | {(task, name): by_task[task] for name, tasks in groups.items() for task in tasks}


def sample_notes(sample: SampleByTask, in_domain: Sequence[str]) -> dict[str, Any]:
    """The notes about these images for every picture of their results."""
    sizes = {task: len(images.labels) for task, images in sample.items()}
    return {
        "split": HALF,
        "sample_seed": SAMPLE.seed,
        "images": max(sizes.values()),
        "fewest_images": min(sizes.values()),
        "n_in": sum(n for task, n in sizes.items() if task in in_domain),
        "n_out": sum(n for task, n in sizes.items() if task not in in_domain),
    }
