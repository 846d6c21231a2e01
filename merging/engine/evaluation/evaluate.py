"""Accuracy of one model, of one model per task, or of one model with modules on top, on a benchmark."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from merging.base.devices import bytes_for_models, choose_device, retry_on_oom
from merging.base.progress import Meter
from merging.engine.evaluation.image_features import (
    ImageModel,
    ModulesOfTask,
    compute_features_of_models,
    predict_classes,
)
from merging.engine.evaluation.stored_features import FeaturePredictions, StoredFeatures
from merging.engine.modules.modules import Modules
from merging.engine.outputs import MERGED
from merging.images.benchmarks.answers import SplitAnswers
from merging.images.benchmarks.benchmark import SPLITS, Benchmark, Task
from merging.images.benchmarks.metrics import individual, wilson
from merging.images.benchmarks.paired_scores import Correctness
from merging.images.benchmarks.referenced_images import Images
from merging.images.image_encoder import Encoder
from merging.models.checkpoint import Checkpoint
from merging.models.formats.model_sources import Source, open_checkpoint
from merging.tasks.context import QUIET, Context

CACHED_BYTES = 1 << 28  # bytes of images that are cached for the next model
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
    return evaluate_answers(
        model, benchmark, splits=splits, tasks=tasks, context=context, modules=modules, stored_features=stored_features
    ).scores


def evaluate_per_task(
    models: Mapping[str, Source],
    benchmark: Benchmark,
    *,
    splits: Sequence[str] = SPLITS,
    context: Context = QUIET,
    stored_features: StoredFeatures | None = None,
) -> pd.DataFrame:
    """As ``evaluate``, for one model per task, {task: model}.

    The score of a task without a model is the mean over all models, because none of them is the right one.
    """
    evaluated = list_task_models(models, benchmark, stored_features)
    return evaluate_models(evaluated, benchmark, splits, context).scores


class Evaluation(NamedTuple):
    """A table of scores as from ``evaluate``, and the answers that it counts, by data set and split."""

    scores: pd.DataFrame
    answers: tuple[SplitAnswers, ...]

    @property
    def correctness(self) -> Correctness:
        """{data set: (n,)}, see ``SplitAnswers``; of an evaluation on one split."""
        return {answers.task: answers.correctness for answers in self.answers}


def evaluate_answers(
    model: Source,
    benchmark: Benchmark,
    *,
    splits: Sequence[str] = SPLITS,
    tasks: Sequence[str] | None = None,
    context: Context = QUIET,
    modules: Modules | None = None,
    stored_features: StoredFeatures | None = None,
    inspect: Inspect | None = None,
) -> Evaluation:
    """The scores of ``evaluate``, with the answers; ``inspect`` gets every prediction. Raises Cancelled."""
    keys = list(tasks) if tasks is not None else [task.key for task in benchmark.tasks]
    evaluated = [EvaluatedModel("", model, keys, modules, stored_features)]
    return evaluate_models(evaluated, benchmark, splits, context, inspect)


def evaluate_models(
    models: Sequence[EvaluatedModel],
    benchmark: Benchmark,
    splits: Sequence[str] = SPLITS,
    context: Context = QUIET,
    inspect: Inspect | None = None,
) -> Evaluation:
    """The evaluation of one model without a name, or of the models of ``list_task_models``. Raises Cancelled.

    ``inspect`` gets every prediction with its features, again if the device runs out of memory.
    """

    def predict_on(device: torch.device) -> list[SplitPrediction]:
        predictions = []
        for prediction in predict_splits(models, benchmark, splits, context.on_device(device)):
            if inspect is not None:
                inspect(prediction)
            predictions.append(prediction.without_features())
        return predictions

    predictions, oom_warnings = retry_on_oom(choose_device(context.device), predict_on)
    for sentence in oom_warnings:
        context.warn(sentence)
    order = {model.name: number for number, model in enumerate(models)}
    return summarize_predictions(sorted(predictions, key=lambda prediction: order[prediction.model]))


def summarize_predictions(predictions: Sequence[SplitPrediction]) -> Evaluation:
    """The evaluation of one model without a name, or of several models by name, from their predictions."""
    by_split: dict[tuple[str, str], list[SplitPrediction]] = {}
    for prediction in predictions:
        by_split.setdefault((prediction.task.key, prediction.split), []).append(prediction)
    return Evaluation(score_table(predictions), tuple(map(join_predictions, by_split.values())))


def join_predictions(predictions: Sequence[SplitPrediction]) -> SplitAnswers:
    """The answers of several models to the images of the same split."""
    first = predictions[0]
    return SplitAnswers(
        first.task.key,
        first.split,
        tuple(one.model or MERGED for one in predictions),
        np.stack([one.predicted for one in predictions]).astype(np.int64),
        np.stack([one.margins for one in predictions]).astype(np.float64),
        first.labels,
    )


@dataclass(frozen=True, slots=True)
class EvaluatedModel:
    """One model and the tasks that it is evaluated on; the name is empty if it is the only model."""

    name: str
    model: Source
    tasks: Sequence[str]
    modules: Modules | None = None  # on top of the model
    stored_features: StoredFeatures | None = None  # features of earlier evaluations, which save forward passes

    def open(self) -> Checkpoint:
        """Open the model's checkpoint. Raises CheckpointError if it cannot be read."""
        return open_checkpoint(self.model, self.name or None)


@dataclass(frozen=True, slots=True)
class SplitPrediction:
    """One model's features and predicted classes for one split of a data set.

    Features that were stored are rounded; their classes and margins were computed before the rounding.
    """

    model: str
    task: Task
    split: str
    features: Tensor  # (n, embed_dim)
    predicted: NDArray[np.int64]  # (n,)
    labels: NDArray[np.int64]  # (n,)
    margins: NDArray[np.float32]  # (n,), see ``cosine_margins``

    def without_features(self) -> SplitPrediction:
        """The same without the features, which take much more memory."""
        return replace(self, features=self.features[:0])

    @property
    def correct(self) -> int:
        """Number of images whose class is predicted correctly."""
        return int((self.predicted == self.labels).sum())

    @property
    def n(self) -> int:
        """Number of images."""
        return len(self.labels)


Inspect = Callable[[SplitPrediction], None]


def list_task_models(
    models: Mapping[str, Source], benchmark: Benchmark, stored_features: StoredFeatures | None = None
) -> list[EvaluatedModel]:
    """The models of a merge that gives one model per task, each with its own task and all tasks without a model."""
    keys = {task.key for task in benchmark.tasks}
    without_model = [task.key for task in benchmark.tasks if task.key not in models]
    evaluated = [
        EvaluatedModel(
            name,
            model,
            [name] * (name in keys) + without_model,
            stored_features=stored_features and stored_features.select_model(name),
        )
        for name, model in models.items()
    ]
    return [model for model in evaluated if model.tasks]


def predict_splits(
    models: Sequence[EvaluatedModel], benchmark: Benchmark, splits: Sequence[str], context: Context = QUIET
) -> Iterator[SplitPrediction]:
    """Every model's predictions, by task and split; splits that a data set lacks are left out.

    Memory holds one model at a time. If images are in files, it holds as many models as fit, so that each image is
    decoded only once.
    """
    counts = {
        (key, split): benchmark.count_images(key, split) for model in models for key in model.tasks for split in splits
    }
    meter = context.meter(sum(counts[key, split] for model in models for key in model.tasks for split in splits))
    benchmark.check_images(dict.fromkeys(key for model in models for key in model.tasks))
    image_cache = _BenchmarkImages(benchmark)
    for group in _group_models(models, benchmark, choose_device(context.device)):
        runners = [_ModelRunner(model, benchmark, context.device) for model in group]
        for task in [benchmark.find_task(key) for key in dict.fromkeys(key for model in group for key in model.tasks)]:
            task_runners = [runner for runner in runners if task.key in runner.model.tasks]
            for split in splits:
                if split in task.splits:
                    yield from _predict_split(task_runners, benchmark, task, split, image_cache, meter)


def _predict_split(
    models: Sequence[_ModelRunner],
    benchmark: Benchmark,
    task: Task,
    split: str,
    image_cache: _BenchmarkImages,
    meter: Meter,
) -> Iterator[SplitPrediction]:
    """The predictions of models for a split: stored ones, and the others from one pass over the split's images."""
    stored = {model.name: entry for model in models if (entry := model.read(task.key, split))}
    computed = [model for model in models if model.name not in stored]
    images, labels = image_cache.read(task.key, split) if computed else (None, benchmark.load_labels(task.key, split))
    names = ", ".join(model.name for model in computed if model.name)
    detail = f"{task.title}, model of {names}" if names else task.title
    features: Iterator[Tensor] = iter(())
    if images is not None:
        towers = [model.encoder_for(task.key) for model in computed]
        features = iter(compute_features_of_models(towers, images, meter, "Evaluating", detail, benchmark.preprocess))
    for model in models:
        if (prediction := stored.get(model.name)) is None:
            prediction = predict_classes(next(features), benchmark.load_head(task.key), torch.from_numpy(labels))
            model.store(task.key, split, prediction)
        else:
            meter.advance(len(labels), "Evaluating", detail)
        yield SplitPrediction(
            model.name, task, split, prediction.features, prediction.predicted, labels, prediction.margins
        )


def _group_models(
    models: Sequence[EvaluatedModel], benchmark: Benchmark, device: torch.device
) -> list[list[EvaluatedModel]]:
    """The models that are in memory together: one at a time, unless several need images that must be decoded."""
    groups: list[list[EvaluatedModel]] = []
    free_bytes = 0
    for model in models:
        # Referenced images stay in their data set's files and are decoded at every use.
        decodes_images = any(benchmark.find_task(key).is_referenced for key in model.tasks)
        size = _count_model_bytes(model) if decodes_images else 0
        if groups and decodes_images and size <= free_bytes:
            groups[-1].append(model)
        else:
            groups.append([model])
            free_bytes = bytes_for_models(device) if decodes_images else 0
        free_bytes -= size
    return groups


def _count_model_bytes(model: EvaluatedModel) -> int:
    """Bytes of a model in memory, in float32."""
    return sum(torch.float32.itemsize * info.numel for info in model.open().infos.values())


class _BenchmarkImages:
    """Reads images and labels of a benchmark, and caches up to ``CACHED_BYTES`` of images for the next model."""

    def __init__(self, benchmark: Benchmark) -> None:
        self._benchmark, self._free_bytes = benchmark, CACHED_BYTES
        self._cached: dict[tuple[str, str], tuple[Images, NDArray[np.int64]]] = {}

    def read(self, key: str, split: str) -> tuple[Images, NDArray[np.int64]]:
        """The images and the labels (n,) of a split of the task ``key``."""
        if (key, split) in self._cached:
            return self._cached[key, split]
        images_and_labels = self._benchmark.load_images(key, split)
        self._free_bytes -= images_and_labels[0].nbytes
        if self._free_bytes >= 0:
            self._cached[key, split] = images_and_labels
        return images_and_labels


def score_table(predictions: Iterable[SplitPrediction]) -> pd.DataFrame:
    """A table of scores, a row per task and split; ``metrics.individual`` combines the scores of several models."""
    rows = [{"model": one.model, **_build_score_row(one.task, one.split, one.correct, one.n)} for one in predictions]
    table = pd.DataFrame(rows, columns=["model", *COLUMNS])
    tables = {str(name): rows.drop(columns="model") for name, rows in table.groupby("model", sort=False)}
    has_names = any(tables)  # the only model of ``evaluate`` has an empty name
    return individual(tables) if has_names else table.drop(columns="model")


class _ModelRunner:
    """Runs a model, which is read when the first images run through it: never if all its predictions are stored."""

    def __init__(self, model: EvaluatedModel, benchmark: Benchmark, device: str) -> None:
        self.model, self.name = model, model.name
        self._benchmark, self._device = benchmark, device

    @cached_property
    def _tower(self) -> Encoder | Modules:
        if self.model.modules is not None:
            return self.model.modules.on(choose_device(self._device))
        architecture_source = self._benchmark.pretrained_tower  # for models without metadata
        return Encoder.from_checkpoint(self.model.open(), choose_device(self._device), fallback=architecture_source)

    def encoder_for(self, key: str) -> ImageModel:
        """The model that encodes the images of a task."""
        return self._tower if isinstance(self._tower, Encoder) else ModulesOfTask(self._tower, key)

    def read(self, key: str, split: str) -> FeaturePredictions | None:
        """The stored predictions of a split; None if there are none."""
        stored_features = self.model.stored_features
        return stored_features.read(self._benchmark, key, split) if stored_features else None

    def store(self, key: str, split: str, predictions: FeaturePredictions) -> None:
        """Store predictions, if the model has a folder for them."""
        if stored_features := self.model.stored_features:
            architecture = self.encoder_for(key).architecture
            stored_features.store(self._benchmark, key, split, predictions, architecture)


def _build_score_row(task: Task, split: str, correct: int, n: int) -> dict[str, Any]:
    """A row of scores, with ``COLUMNS``."""
    accuracy = correct / n if n else math.nan
    values = (task.key, task.title, split, len(task.class_names), correct, n, accuracy, *wilson(correct, n))
    return dict(zip(COLUMNS, values, strict=True))
