"""Accuracy of one model, of one model per task, or of one model with modules on top, on a benchmark."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from merging.base.devices import choose_device, free_for_models, retry_on_oom
from merging.base.progress import Meter
from merging.engine.evaluation.image_features import ImageModel, ModulesOfTask, answer_features, features_together
from merging.engine.evaluation.stored_features import FeatureAnswers, StoredFeatures
from merging.engine.modules.modules import Modules
from merging.images.benchmarks.benchmark import SPLITS, Benchmark, Task
from merging.images.benchmarks.metrics import individual, wilson
from merging.images.benchmarks.referenced_images import Images
from merging.images.image_encoder import Encoder
from merging.models.checkpoint import Checkpoint
from merging.models.formats.model_sources import Source, open_checkpoint
from merging.tasks.context import QUIET, Context

CACHED_BYTES = 1 << 28  # bytes of images that stay in memory for the next model
COLUMNS = ("task", "title", "split", "classes", "correct", "n", "accuracy", "low", "high")


def evaluate(
    model: Source,
    benchmark: Benchmark,
    *,
    splits: Sequence[str] = SPLITS,
    tasks: Sequence[str] | None = None,
    context: Context = QUIET,
    modules: Modules | None = None,
    stored_features: StoredFeatures | None = None,
) -> pd.DataFrame:
    """Zero-shot top-1 accuracy: one row per (task, split) with classes, correct, n, accuracy and Wilson interval.

    Accuracies are fractions. ``modules`` run on top of the model. If a device runs out of memory, batches get smaller,
    with a warning.

    Raises:
        Cancelled: the caller cancelled; checked between two batches.
    """
    keys = list(tasks) if tasks is not None else [task.key for task in benchmark.tasks]
    work = [EvaluatedModel("", model, keys, modules, stored_features)]
    return score_table(_count_correct(work, benchmark, splits, context))


def evaluate_per_task(
    models: Mapping[str, Source],
    benchmark: Benchmark,
    *,
    splits: Sequence[str] = SPLITS,
    context: Context = QUIET,
    stored_features: StoredFeatures | None = None,
) -> pd.DataFrame:
    """As ``evaluate``, for {task: model}: every task has a model of its own.

    The score of a task without a model is the mean over all models, because none of them is the right one.
    """
    work = per_task_parts(models, benchmark, stored_features)
    return score_table(_count_correct(work, benchmark, splits, context))


Counted = tuple[str, Task, str, int, int]  # model, task, split, correct, n


def _count_correct(
    work: Sequence[EvaluatedModel], benchmark: Benchmark, splits: Sequence[str], context: Context
) -> list[Counted]:
    """The counts of correct answers of every model by task and split, one model after another."""

    def count_on(device: torch.device) -> list[Counted]:
        every = compute_answers(work, benchmark, splits, context.on_device(device))
        counted = [(one.model, one.task, one.split, one.correct, one.n) for one in every]
        order = {part.name: number for number, part in enumerate(work)}
        return sorted(counted, key=lambda one: order[one[0]])

    counted, oom_warnings = retry_on_oom(choose_device(context.device), count_on)
    for sentence in oom_warnings:
        context.warn(sentence)
    return counted


@dataclass(frozen=True, slots=True)
class EvaluatedModel:
    """One model and the tasks that it is evaluated on; the name is empty if it is the only model."""

    name: str
    model: Source
    tasks: Sequence[str]
    modules: Modules | None = None  # on top of the model
    stored_features: StoredFeatures | None = None  # its features from earlier evaluations, which save forward passes

    def open(self) -> Checkpoint:
        """Its checkpoint. Raises CheckpointError if it cannot be read."""
        return open_checkpoint(self.model, self.name or None)


@dataclass(frozen=True, slots=True)
class Answer:
    """One model's features and predicted classes for one split of a data set.

    Stored features are rounded; classes and margins are those from before the rounding.
    """

    model: str
    task: Task
    split: str
    features: Tensor  # (n, embed_dim)
    predicted: NDArray[np.int64]  # (n,)
    labels: NDArray[np.int64]  # (n,)
    margins: NDArray[np.float32]  # (n,)

    @property
    def correct(self) -> int:
        """Number of images whose class is predicted correctly."""
        return int((self.predicted == self.labels).sum())

    @property
    def n(self) -> int:
        """Number of images."""
        return len(self.labels)


def per_task_parts(
    models: Mapping[str, Source], benchmark: Benchmark, stored_features: StoredFeatures | None = None
) -> list[EvaluatedModel]:
    """The models of a merge that gives one model per task, each with its tasks: its own, and those without a model."""
    keys = {task.key for task in benchmark.tasks}
    outside = [task.key for task in benchmark.tasks if task.key not in models]
    work = [
        EvaluatedModel(
            name,
            model,
            [name] * (name in keys) + outside,
            stored_features=stored_features and stored_features.part(name),
        )
        for name, model in models.items()
    ]
    return [part for part in work if part.tasks]


def compute_answers(
    work: Sequence[EvaluatedModel], benchmark: Benchmark, splits: Sequence[str], context: Context = QUIET
) -> Iterator[Answer]:
    """Every model's answers, by task and split; splits that a data set lacks are left out.

    Memory holds one model at a time, or as many as fit if their images are in files, which are then decoded once.
    """
    pairs = {(key, split): benchmark.count(key, split) for part in work for key in part.tasks for split in splits}
    meter = context.meter(sum(pairs[key, split] for part in work for key in part.tasks for split in splits))
    benchmark.check_images(dict.fromkeys(key for part in work for key in part.tasks))
    read = _Images(benchmark)
    for group in _groups(work, benchmark, choose_device(context.device)):
        models = [_OpenedModel(part, benchmark, context.device) for part in group]
        for task in [benchmark.task(key) for key in dict.fromkeys(key for part in group for key in part.tasks)]:
            evaluated = [model for model in models if task.key in model.part.tasks]
            for split in splits:
                if split in task.splits:
                    yield from _answer_split(evaluated, benchmark, task, split, read, meter)


def _answer_split(
    models: Sequence[_OpenedModel], benchmark: Benchmark, task: Task, split: str, read: _Images, meter: Meter
) -> Iterator[Answer]:
    """The answers of models for a split: stored answers, and the others from one pass over its images."""
    stored = {model.name: known for model in models if (known := model.read(task.key, split))}
    computed = [model for model in models if model.name not in stored]
    images, labels = read(task.key, split) if computed else (None, benchmark.labels(task.key, split))
    names = ", ".join(model.name for model in computed if model.name)
    detail = f"{task.title}, model of {names}" if names else task.title
    rows: Iterator[Tensor] = iter(())
    if images is not None:
        towers = [model.encoder_for(task.key) for model in computed]
        rows = iter(features_together(towers, images, meter, "Evaluating", detail, benchmark.preprocess))
    for model in models:
        if (known := stored.get(model.name)) is None:
            known = answer_features(next(rows), benchmark.head(task.key), torch.from_numpy(labels))
            model.store(task.key, split, known)
        else:
            meter.advance(len(labels), "Evaluating", detail)
        yield Answer(model.name, task, split, known.features, known.predicted, labels, known.margins)


def _groups(work: Sequence[EvaluatedModel], benchmark: Benchmark, device: torch.device) -> list[list[EvaluatedModel]]:
    """The models that are in memory together: one at a time, unless several share images that must be decoded."""
    groups: list[list[EvaluatedModel]] = []
    free = 0
    for part in work:
        shared = any(benchmark.task(key).referenced for key in part.tasks)
        size = _size(part) if shared else 0
        if groups and shared and size <= free:
            groups[-1].append(part)
        else:
            groups.append([part])
            free = free_for_models(device) if shared else 0
        free -= size
    return groups


def _size(part: EvaluatedModel) -> int:
    """Bytes of a model in memory, in float32."""
    return sum(4 * info.numel for info in part.open().infos.values())


class _Images:
    """Reads images of a benchmark, and caches them for the next model up to ``CACHED_BYTES``."""

    def __init__(self, benchmark: Benchmark) -> None:
        self._benchmark, self._free_bytes = benchmark, CACHED_BYTES
        self._cached: dict[tuple[str, str], tuple[Images, NDArray[np.int64]]] = {}

    def __call__(self, key: str, split: str) -> tuple[Images, NDArray[np.int64]]:
        if (key, split) in self._cached:
            return self._cached[key, split]
        images_and_labels = self._benchmark.images(key, split)
        self._free_bytes -= images_and_labels[0].nbytes
        if self._free_bytes >= 0:
            self._cached[key, split] = images_and_labels
        return images_and_labels


def score_table(counted: Iterable[tuple[str, Task, str, int, int]]) -> pd.DataFrame:
    """Scores from (model, task, split, correct, n); those of several models joined by ``metrics.individual``."""
    rows = [{"model": model, **_row(task, split, correct, n)} for model, task, split, correct, n in counted]
    table = pd.DataFrame(rows, columns=["model", *COLUMNS])
    tables = {str(name): own.drop(columns="model") for name, own in table.groupby("model", sort=False)}
    return individual(tables) if any(tables) else table.drop(columns="model")


class _OpenedModel:
    """A model that is evaluated; it is read when the first images run through it, never if its answers are stored."""

    def __init__(self, part: EvaluatedModel, benchmark: Benchmark, device: str) -> None:
        self.part, self.name = part, part.name
        self._benchmark, self._device = benchmark, device

    @cached_property
    def _tower(self) -> Encoder | Modules:
        if self.part.modules is not None:
            return self.part.modules.on(choose_device(self._device))
        return Encoder.from_checkpoint(
            self.part.open(), choose_device(self._device), fallback=self._benchmark.pretrained_tower
        )

    def encoder_for(self, key: str) -> ImageModel:
        """The model that encodes the images of a task."""
        return self._tower if isinstance(self._tower, Encoder) else ModulesOfTask(self._tower, key)

    def read(self, key: str, split: str) -> FeatureAnswers | None:
        """The stored answers of a split; None if there are none."""
        return self.part.stored_features.read(self._benchmark, key, split) if self.part.stored_features else None

    def store(self, key: str, split: str, answers: FeatureAnswers) -> None:
        """Store answers, if the model has a folder for them."""
        if self.part.stored_features:
            self.part.stored_features.store(self._benchmark, key, split, answers, self.encoder_for(key).architecture)


def _row(task: Task, split: str, correct: int, n: int) -> dict[str, Any]:
    accuracy = correct / n if n else math.nan
    values = (task.key, task.title, split, len(task.class_names), correct, n, accuracy, *wilson(correct, n))
    return dict(zip(COLUMNS, values, strict=True))
