"""Accuracy of a model on a benchmark, and what a merge gained and lost in and out of domain."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from merging.checkpoints import Checkpoint, Source, open_checkpoint
from merging.encoder import Encoder
from merging.engine import choose_device
from merging.progress import Cancel, Meter, ProgressCallback
from merging.summary import Summary, h_score, summarize, wilson
from merging.tasks import SPLITS, Benchmark

__all__ = ["Summary", "evaluate", "evaluate_per_task", "features", "h_score", "predict", "summarize", "wilson"]

BATCH = 128


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
    return _evaluate(dict.fromkeys(keys, model), benchmark, splits, device, progress, cancel)


def evaluate_per_task(
    models: Mapping[str, Source],
    benchmark: Benchmark,
    *,
    splits: Sequence[str] = SPLITS,
    device: str = "auto",
    progress: ProgressCallback | None = None,
    cancel: Cancel | None = None,
) -> pd.DataFrame:
    """The same where every task has a model of its own; tasks without one have no row."""
    return _evaluate(models, benchmark, splits, device, progress, cancel)


def _evaluate(
    models: Mapping[str, Source],
    benchmark: Benchmark,
    splits: Sequence[str],
    device: str,
    progress: ProgressCallback | None,
    cancel: Cancel | None,
) -> pd.DataFrame:
    data = {(key, split): benchmark.images(key, split) for key in models for split in splits}
    meter = Meter(sum(len(labels) for _, labels in data.values()), progress, cancel)
    rows = []
    for (key, split), encoder in _encoders(models, benchmark, splits, device):
        images, labels = data[key, split]
        task = benchmark.task(key)
        found = features(encoder, benchmark.preprocess(images), meter, "Evaluating", task.title)
        correct, n = int((predict(found, benchmark.head(key)) == labels).sum()), len(labels)
        low, high = wilson(correct, n)
        rows.append(
            {
                "task": key,
                "title": task.title,
                "split": split,
                "classes": len(task.class_names),
                "correct": correct,
                "n": n,
                "accuracy": correct / n if n else math.nan,
                "low": low,
                "high": high,
            }
        )
    return pd.DataFrame(rows)


def _encoders(
    models: Mapping[str, Source], benchmark: Benchmark, splits: Sequence[str], device: str
) -> Iterator[tuple[tuple[str, str], Encoder]]:
    """Each (task, split) with the encoder to use; one model after another, the last one kept."""
    last: Source | None = None
    encoder: Encoder | None = None
    for key, model in models.items():
        if encoder is None or model is not last:
            checkpoint: Checkpoint = open_checkpoint(model, name=key)
            encoder, last = Encoder.of(checkpoint, choose_device(device), like=benchmark.tower), model
        for split in splits:
            yield (key, split), encoder
