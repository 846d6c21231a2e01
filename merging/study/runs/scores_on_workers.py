"""The evaluation of a merged model on workers: they compute features, and this process stores them."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np

from merging.base.errors import Cancelled, MergingError, WorkerError, WorkersGone
from merging.engine.evaluation.stored_features import FeaturePredictions, StoredFeatures, is_worth_storing
from merging.engine.outputs import MERGED
from merging.images.benchmarks.benchmark import SPLITS, Benchmark
from merging.models.architecture import Architecture
from merging.models.formats.files_on_workers import digest_for_request
from merging.models.formats.model_sources import open_checkpoint
from merging.models.formats.safetensors import decode_tensor
from merging.study.runs.score_task import FACTS
from merging.tasks.context import Context
from merging.tasks.kinds import SCORE, Plain
from merging.tasks.workers.checking import is_same_hardware
from merging.tasks.workers.fan_out import WorkerTask
from merging.tasks.workers.pools import open_workers
from merging.tasks.workers.task_map import TaskMap, raise_error


def store_answers_of_workers(
    path: Path, benchmark: Benchmark, stored_features: StoredFeatures, context: Context
) -> None:
    """Let the context's workers compute a model's expensive features, and store them in ``stored_features``.

    If workers fail, a warning gives the reason, and the evaluation computes the missing features. Raises Cancelled.
    """
    if not context.workers:
        return
    model = open_checkpoint(path, MERGED)
    tower = Architecture.from_checkpoint(model, benchmark.pretrained_tower)
    pairs = [(task.key, split) for task in benchmark.tasks for split in SPLITS if split in task.splits]
    counts = {pair: benchmark.count_images(*pair) for pair in pairs}
    missing = [
        pair
        for pair in pairs
        if is_worth_storing(counts[pair], tower) and stored_features.read(benchmark, *pair) is None
    ]
    if not missing:
        return
    request = {"model": str(path), "digest": digest_for_request(model), "device": context.device}
    request |= {"benchmark": str(benchmark.folder.absolute()), "images": benchmark.digest}
    missing.sort(key=lambda pair: -counts[pair])
    pairs_by_name = {f"{task} {split}": (task, split) for task, split in missing}

    def store_answer(task: WorkerTask, answer: FeaturePredictions) -> None:
        stored_features.store(benchmark, *pairs_by_name[task.name], answer, tower)

    tasks = [
        WorkerTask(
            name,
            partial(dict, request, name=name, task=task, split=split),
            work=counts[task, split],
            detail=benchmark.find_task(task).title,
        )
        for name, (task, split) in pairs_by_name.items()
    ]
    try:
        with open_workers(context) as workers:
            if workers is not None and is_same_hardware(workers, context.device, context.warn, "evaluation"):
                task_map = TaskMap(
                    SCORE, context, lambda _, answer: _read_answer(answer), store_answer, on_error=raise_error
                )
                task_map.run(tasks, workers)
    except MergingError as error:
        if isinstance(error, Cancelled) and not isinstance(error, WorkersGone):
            raise
        context.warn(f"This machine evaluates the remaining images: {error}")


def _read_answer(answer: Plain) -> FeaturePredictions:
    """The features and predictions in a worker's answer. Raises WorkerError if it is malformed."""
    try:
        _, features, metadata = decode_tensor(answer.get("file", b""), "A worker's answer")
        facts = json.loads(metadata[FACTS])
        return FeaturePredictions(
            features, np.array(facts["predicted"], np.int64), np.array(facts["margins"], np.float32)
        )
    except (ValueError, KeyError, TypeError):
        raise WorkerError("A worker answered with something else than features. Restart it.") from None
