"""Accuracy when the task of an image is not known: the modules on a model also choose the head."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

import pandas as pd
import torch
from torch import Tensor

from merging.base.devices import choose_device, retry_on_oom
from merging.base.threads import run_in_threads
from merging.engine.evaluation.evaluate import COLUMNS
from merging.engine.evaluation.image_features import HEAD_BATCH, cosines
from merging.engine.modules.modules import Modules
from merging.images.batch_sizes import forward_bytes, limit_batch
from merging.images.benchmarks.benchmark import SPLITS, Benchmark
from merging.images.benchmarks.metrics import wilson
from merging.tasks.context import QUIET, Context

UNKNOWN_TASK = "task_unknown"  # the table's name


def choose_heads(features: Tensor, named: Tensor, heads: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """The number of the head (n,) and the class (n,) with the largest cosine, among the tasks ``named`` (n, K).

    ``named`` is true for the tasks to which an image may belong, in the order of the heads. ``features`` are
    (n, embed_dim), each head is (classes, embed_dim).
    """
    best = [cosines(features, head).max(dim=1) for head in heads.values()]  # largest cosine and its class, per head
    values = torch.stack([result.values for result in best], dim=1).masked_fill(~named, -torch.inf)
    head_numbers = values.argmax(dim=1)
    classes = torch.stack([result.indices for result in best], dim=1)
    return head_numbers, classes.gather(1, head_numbers[:, None])[:, 0]


def evaluate_unknown_task(
    modules: Modules, benchmark: Benchmark, *, splits: Sequence[str] = SPLITS, context: Context = QUIET
) -> pd.DataFrame:
    """One row per (task, split) of the merged tasks: as ``evaluate``, and ``own_head``, the share with the right head.

    An image counts as correct if both its head and its class are right. Data sets of other tasks have no head to choose
    and are left out. Every task of the modules must be in the benchmark. If a device runs out of memory, batches get
    smaller, with a warning.

    Raises:
        Cancelled: the caller cancelled; checked between two batches.
    """

    def scores_on(device: torch.device) -> pd.DataFrame:
        return _score_splits(modules.on(device), benchmark, splits, context)

    scores, oom_warnings = retry_on_oom(choose_device(context.device), scores_on)
    for sentence in oom_warnings:
        context.warn(sentence)
    return scores


def _choose_batch(modules: Modules, batch: Tensor, heads: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """The head (n,) and the class (n,) that the modules choose for each image (n, 3, h, w)."""
    named = modules.named_tasks(batch)
    assert named is not None
    return choose_heads(modules.features(batch), named, heads)


def _score_splits(modules: Modules, benchmark: Benchmark, splits: Sequence[str], context: Context) -> pd.DataFrame:
    """The table of ``evaluate_unknown_task``, on the device of the modules."""
    heads = {task: benchmark.load_head(task) for task in modules.tasks}
    meter = context.meter(sum(benchmark.count_images(task, split) for task in modules.tasks for split in splits))
    rows, size = [], limit_batch(HEAD_BATCH, modules.architecture, modules.device)  # images at a time
    for number, key in enumerate(modules.tasks):
        task = benchmark.find_task(key)
        for split in (split for split in splits if split in task.splits):
            images, labels = benchmark.load_images(key, split)
            right_head, correct, n = 0, 0, len(labels)
            batches = [slice(start, start + size) for start in range(0, n, size)]
            choices = (partial(_choose_batch, modules, benchmark.preprocess(images[batch]), heads) for batch in batches)
            with run_in_threads(choices, modules.device, forward_bytes(size, modules.architecture)) as results:
                for batch, (head_numbers, classes) in zip(batches, results, strict=True):
                    has_right_head = head_numbers == number
                    right_head += int(has_right_head.sum())
                    correct += int((has_right_head & (classes == torch.from_numpy(labels[batch]))).sum())
                    meter.advance(len(head_numbers), "Choosing heads", task.title)
            accuracy, right_head_share = (count / n if n else math.nan for count in (correct, right_head))
            scores = (key, task.title, split, len(task.class_names), correct, n, accuracy, *wilson(correct, n))
            rows.append((*scores, right_head_share))
    return pd.DataFrame(rows, columns=[*COLUMNS, "own_head"])
