"""Accuracy on a benchmark, of one model, of one model per task, or of one model with modules on top."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from merging.benchmarks.benchmark import SPLITS, Benchmark, Task
from merging.benchmarks.metrics import individual, wilson
from merging.checkpoints.architecture import Architecture
from merging.checkpoints.checkpoint import Checkpoint
from merging.clip.batches import batch_size
from merging.clip.image_encoder import Encoder
from merging.devices import choose_device, in_room, is_host, moved
from merging.formats.opening import Source, open_checkpoint
from merging.modules.modules import Modules
from merging.progress import Cancel, Meter, ProgressCallback

BATCH = 128
FARTHEST = 2.0  # the largest difference of two cosines
KEPT_BYTES = 1 << 28  # of images that stay in memory for the next model
Warn = Callable[[str], None]  # called with a sentence on what may be wrong with a result
log_warning = logging.getLogger("merging").warning
COLUMNS = ("task", "title", "split", "classes", "correct", "n", "accuracy", "low", "high")


class ImageModel(Protocol):
    """What gives features of images: an encoder, or modules on top of one."""

    @property
    def device(self) -> torch.device:
        """Where it runs."""
        ...

    @property
    def architecture(self) -> Architecture:
        """That of its tower."""
        ...

    def __call__(self, images: Tensor, /) -> Tensor:
        """Features (n, embed_dim) of preprocessed images (n, 3, h, w)."""
        ...


@dataclass(frozen=True, slots=True)
class ModulesOfTask:
    """Modules as they are used on the images of one data set, which they are told only where they cannot do without.

    A module of the task itself is used in domain; elsewhere there is none, and the merged model's features count.
    Modules that route get no task: every image finds its own way.
    """

    modules: Modules
    task: str

    @property
    def device(self) -> torch.device:
        """Where they run."""
        return self.modules.device

    @property
    def architecture(self) -> Architecture:
        """That of the merged model."""
        return self.modules.architecture

    def __call__(self, images: Tensor, /) -> Tensor:
        """Features (n, embed_dim) of preprocessed images (n, 3, h, w)."""
        own = self.modules.method.needs_task and self.task in self.modules.tasks
        return self.modules.features(images, self.task if own else None)


def features(
    encoder: ImageModel,
    images: Tensor | NDArray[np.uint8],
    meter: Meter | None = None,
    phase: str = "Reading features",
    detail: str = "",
    prepare: Callable[[NDArray[np.uint8]], Tensor] | None = None,
) -> Tensor:
    """Image features (n, embed_dim) of preprocessed images (n, 3, h, w), batch by batch, on the CPU.

    With ``prepare``, images come as they are stored and are preprocessed a batch at a time: the next ones while an
    accelerator computes, whose memory gives the size of its batches.
    """
    device, rows = encoder.device, list[Tensor]()
    size = BATCH if is_host(device) else batch_size(encoder.architecture, device)
    with torch.inference_mode():
        for start in range(0, len(images), size):
            batch: Any = images[start : start + size]
            inputs: Tensor = batch if prepare is None else prepare(batch)
            rows.append(encoder(moved(inputs, device, inputs.dtype)))
            if len(rows) > 1:  # an accelerator still computes the last batch, which need not be waited for
                rows[-2] = rows[-2].cpu()
            if meter is not None:
                meter.advance(len(inputs), phase, detail)
    return torch.cat([*rows[:-1], rows[-1].cpu()]) if rows else torch.empty(0, encoder.architecture.embed_dim)


def cosines(image_features: Tensor, head: Tensor) -> Tensor:
    """Cosines (n, classes) of images and classes."""
    return torch.nn.functional.normalize(image_features, dim=-1) @ head.T


def predict(image_features: Tensor, head: Tensor) -> NDArray[np.int64]:
    """The class with the highest cosine, per image (n,)."""
    classes: NDArray[np.int64] = cosines(image_features, head).argmax(dim=-1).numpy()
    return classes


def margins(image_features: Tensor, head: Tensor, labels: Tensor) -> Tensor:
    """By how much the cosine of the right class exceeds the largest other one (n,); positive if the model is right."""
    similarities, right = cosines(image_features, head), labels[:, None]
    own = similarities.gather(1, right)[:, 0]
    other = similarities.scatter(1, right, -torch.inf).amax(dim=1)
    return (own - other).clamp(-FARTHEST, FARTHEST)  # without another class there is no largest other one


def evaluate(
    model: Source,
    benchmark: Benchmark,
    *,
    splits: Sequence[str] = SPLITS,
    tasks: Sequence[str] | None = None,
    device: str = "auto",
    progress: ProgressCallback | None = None,
    cancel: Cancel | None = None,
    modules: Modules | None = None,
    warn: Warn = log_warning,
) -> pd.DataFrame:
    """Zero-shot top-1 accuracy: one row per (task, split) with classes, correct, n, accuracy and Wilson interval.

    Accuracies are fractions. With ``modules``, which sit on the model, images go through them. Where a device runs out
    of memory, batches get smaller and ``warn`` is called. Raises Cancelled between batches if asked to stop.
    """
    keys = list(tasks) if tasks is not None else [task.key for task in benchmark.tasks]
    return _scores([EvaluatedModel("", model, keys, modules)], benchmark, splits, device, progress, cancel, warn)


def evaluate_per_task(
    models: Mapping[str, Source],
    benchmark: Benchmark,
    *,
    splits: Sequence[str] = SPLITS,
    device: str = "auto",
    progress: ProgressCallback | None = None,
    cancel: Cancel | None = None,
    warn: Warn = log_warning,
) -> pd.DataFrame:
    """The same where every task has a model of its own, as {task: model}.

    A task without one takes the mean over all models: nothing says which of them to use.
    """
    return _scores(per_task_parts(models, benchmark), benchmark, splits, device, progress, cancel, warn)


def _scores(
    work: Sequence[EvaluatedModel],
    benchmark: Benchmark,
    splits: Sequence[str],
    device: str,
    progress: ProgressCallback | None,
    cancel: Cancel | None,
    warn: Warn,
) -> pd.DataFrame:
    def scores_on(on: torch.device) -> pd.DataFrame:
        every = answers(work, benchmark, splits, str(on), progress, cancel)
        return score_table((one.model, one.task, one.split, one.correct, one.n) for one in every)

    scores, words = in_room(choose_device(device), scores_on)
    for sentence in words:
        warn(sentence)
    return scores


@dataclass(frozen=True, slots=True)
class EvaluatedModel:
    """One model and the tasks that it is evaluated on; the name is empty if it is the only model."""

    name: str
    model: Source
    tasks: Sequence[str]
    modules: Modules | None = None  # on top of the model


@dataclass(frozen=True, slots=True)
class Answer:
    """One model's features and predicted classes for one split of a data set."""

    model: str
    task: Task
    split: str
    features: Tensor  # (n, embed_dim)
    predicted: NDArray[np.int64]
    labels: NDArray[np.int64]

    @property
    def correct(self) -> int:
        """Number of images whose class is predicted correctly."""
        return int((self.predicted == self.labels).sum())

    @property
    def n(self) -> int:
        """Number of images."""
        return len(self.labels)


def per_task_parts(models: Mapping[str, Source], benchmark: Benchmark) -> list[EvaluatedModel]:
    """The tasks of each model of a merge that gives one model per task: its own, and those that have no model."""
    keys = {task.key for task in benchmark.tasks}
    outside = [task.key for task in benchmark.tasks if task.key not in models]
    work = [EvaluatedModel(name, model, [name] * (name in keys) + outside) for name, model in models.items()]
    return [part for part in work if part.tasks]


def answers(
    work: Sequence[EvaluatedModel],
    benchmark: Benchmark,
    splits: Sequence[str],
    device: str = "auto",
    progress: ProgressCallback | None = None,
    cancel: Cancel | None = None,
) -> Iterator[Answer]:
    """Every model's answers, by task and split; one model after another is in memory."""
    pairs = [(key, split) for part in work for key in part.tasks for split in splits]
    meter = Meter(sum(benchmark.count(key, split) for key, split in pairs), progress, cancel)
    read = _Images(benchmark)
    for part in work:
        through = _through(part, benchmark, device)
        for key in part.tasks:
            task = benchmark.task(key)
            detail = f"{task.title}, model of {part.name}" if part.name else task.title
            for split in splits:
                images, labels = read(key, split)
                image_features = features(through(key), images, meter, "Evaluating", detail, benchmark.preprocess)
                yield Answer(
                    part.name, task, split, image_features, predict(image_features, benchmark.head(key)), labels
                )


class _Images:
    """Reads images of a benchmark, and keeps them for the next model while there is room."""

    def __init__(self, benchmark: Benchmark) -> None:
        self._benchmark, self._room = benchmark, KEPT_BYTES
        self._kept: dict[tuple[str, str], tuple[NDArray[np.uint8], NDArray[np.int64]]] = {}

    def __call__(self, key: str, split: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        if (key, split) in self._kept:
            return self._kept[key, split]
        images_and_labels = self._benchmark.images(key, split)
        self._room -= images_and_labels[0].nbytes
        if self._room >= 0:
            self._kept[key, split] = images_and_labels
        return images_and_labels


def score_table(counted: Iterable[tuple[str, Task, str, int, int]]) -> pd.DataFrame:
    """Scores from (model, task, split, correct, n); those of several models joined by ``metrics.individual``."""
    rows = [{"model": model, **_row(task, split, correct, n)} for model, task, split, correct, n in counted]
    table = pd.DataFrame(rows, columns=["model", *COLUMNS])
    tables = {str(name): own.drop(columns="model") for name, own in table.groupby("model", sort=False)}
    return individual(tables) if any(tables) else table.drop(columns="model")


def _through(part: EvaluatedModel, benchmark: Benchmark, device: str) -> Callable[[str], ImageModel]:
    """What the images of each task go through."""
    if part.modules is not None:
        here = part.modules.on(choose_device(device))
        return lambda key: ModulesOfTask(here, key)
    checkpoint: Checkpoint = open_checkpoint(part.model, name=part.name or None)
    encoder = Encoder.of(checkpoint, choose_device(device), like=benchmark.tower)
    return lambda key: encoder


def _row(task: Task, split: str, correct: int, n: int) -> dict[str, Any]:
    accuracy = correct / n if n else math.nan
    values = (task.key, task.title, split, len(task.class_names), correct, n, accuracy, *wilson(correct, n))
    return dict(zip(COLUMNS, values, strict=True))
