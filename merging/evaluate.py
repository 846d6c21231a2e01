"""Accuracy of a model on a benchmark, and what a merge gained and lost in and out of domain."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from merging.checkpoints import Checkpoint, Source, open_checkpoint
from merging.encoder import Encoder
from merging.engine import choose_device
from merging.progress import Cancel, Meter, ProgressCallback
from merging.summary import Summary, h_score, individual, summarize, wilson
from merging.tasks import SPLITS, Benchmark, Task

__all__ = ["Summary", "evaluate", "evaluate_per_task", "features", "h_score", "predict", "summarize", "wilson"]

BATCH = 128
COLUMNS = ("task", "title", "split", "classes", "correct", "n", "accuracy", "low", "high")


def features(
    encoder: Encoder, images: Tensor, meter: Meter | None = None, phase: str = "Reading features", detail: str = ""
) -> Tensor:
    """Image features (n, embed_dim) of preprocessed images (n, 3, h, w), batch by batch, on the CPU."""
    found = []
    with torch.inference_mode():
        for batch in images.split(BATCH):
            found.append(encoder(batch.to(encoder.device)).cpu())
            if meter is not None:
                meter.advance(len(batch), phase, detail)
    return torch.cat(found) if found else torch.empty(0, encoder.architecture.embed_dim)


def predict(image_features: Tensor, head: Tensor) -> NDArray[np.int64]:
    """The class with the highest cosine, per image (n,)."""
    unit = torch.nn.functional.normalize(image_features, dim=-1)
    classes: NDArray[np.int64] = (unit @ head.T).argmax(dim=-1).numpy()
    return classes


def evaluate(
    model: Source,
    benchmark: Benchmark,
    *,
    splits: Sequence[str] = SPLITS,
    tasks: Sequence[str] | None = None,
    device: str = "auto",
    progress: ProgressCallback | None = None,
    cancel: Cancel | None = None,
) -> pd.DataFrame:
    """Zero-shot top-1 accuracy: one row per (task, split) with classes, correct, n, accuracy and Wilson interval.

    Accuracies are fractions. Raises Cancelled between batches if asked to stop.
    """
    keys = list(tasks) if tasks is not None else [task.key for task in benchmark.tasks]
    found = _evaluate([_Part("", model, keys)], benchmark, splits, device, progress, cancel)
    return found.drop(columns="model")


def evaluate_per_task(
    models: Mapping[str, Source],
    benchmark: Benchmark,
    *,
    splits: Sequence[str] = SPLITS,
    device: str = "auto",
    progress: ProgressCallback | None = None,
    cancel: Cancel | None = None,
) -> pd.DataFrame:
    """The same where every task has a model of its own, as {task: model}.

    A task without one takes the mean over all models: nothing says which of them to ask.
    """
    known = {task.key for task in benchmark.tasks}
    outside = [task.key for task in benchmark.tasks if task.key not in models]
    work = [_Part(name, model, [name] * (name in known) + outside) for name, model in models.items()]
    found = _evaluate([part for part in work if part.tasks], benchmark, splits, device, progress, cancel)
    of_each = {str(name): rows.drop(columns="model") for name, rows in found.groupby("model", sort=False)}
    return individual(of_each) if of_each else found.drop(columns="model")


@dataclass(frozen=True, slots=True)
class _Part:
    """One model and the tasks that it is asked about."""

    name: str
    model: Source
    tasks: Sequence[str]


def _evaluate(
    work: Sequence[_Part],
    benchmark: Benchmark,
    splits: Sequence[str],
    device: str,
    progress: ProgressCallback | None,
    cancel: Cancel | None,
) -> pd.DataFrame:
    """One row per (model, task, split); one model after another is in memory."""
    keys = dict.fromkeys(key for part in work for key in part.tasks)
    data = {(key, split): benchmark.images(key, split) for key in keys for split in splits}
    asked = [(part, key, split) for part in work for key in part.tasks for split in splits]
    meter = Meter(sum(len(data[key, split][1]) for _, key, split in asked), progress, cancel)
    rows = []
    for part in work:
        encoder = _encoder(part, benchmark, device)
        for key in part.tasks:
            task = benchmark.task(key)
            detail = f"{task.title}, model of {part.name}" if part.name else task.title
            for split in splits:
                images, labels = data[key, split]
                found = features(encoder, benchmark.preprocess(images), meter, "Evaluating", detail)
                correct = int((predict(found, benchmark.head(key)) == labels).sum())
                rows.append({"model": part.name, **_row(task, split, correct, len(labels))})
    return pd.DataFrame(rows, columns=["model", *COLUMNS])


def _encoder(part: _Part, benchmark: Benchmark, device: str) -> Encoder:
    checkpoint: Checkpoint = open_checkpoint(part.model, name=part.name or None)
    return Encoder.of(checkpoint, choose_device(device), like=benchmark.tower)


def _row(task: Task, split: str, correct: int, n: int) -> dict[str, Any]:
    accuracy = correct / n if n else math.nan
    values = (task.key, task.title, split, len(task.class_names), correct, n, accuracy, *wilson(correct, n))
    return dict(zip(COLUMNS, values, strict=True))
