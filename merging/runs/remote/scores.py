"""The evaluation of a merged model on workers, which compute the features that the store then keeps."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np

from merging.benchmarks.benchmark import SPLITS, Benchmark
from merging.benchmarks.kept_features import Answered, KeptFeatures, worth
from merging.checkpoints.architecture import Architecture
from merging.engine.outputs import MERGED
from merging.errors import Cancelled, MergingError, WorkerError, WorkersGone
from merging.formats.handed_out import handed_out
from merging.formats.opening import open_checkpoint
from merging.formats.safetensors import tensor_of
from merging.runs.remote.score_task import FACTS
from merging.tasks.context import Context
from merging.tasks.kinds import SCORE, Plain
from merging.workers import pools
from merging.workers.checking import same_hardware
from merging.workers.fan_out import FanOut, WorkerTask


def keep_answers_of_workers(path: Path, benchmark: Benchmark, kept: KeptFeatures, spec: str, context: Context) -> None:
    """Let workers compute the features of a model that take long, so that an evaluation finds them ``kept``.

    What they do not compute is left to the evaluation; a warning says why. Raises Cancelled as asked.
    """
    if not spec.strip():
        return
    model = open_checkpoint(path, MERGED)
    tower = Architecture.of(model, benchmark.tower)
    pairs = [(task.key, split) for task in benchmark.tasks for split in SPLITS if split in task.splits]
    counts = {pair: benchmark.count(*pair) for pair in pairs}
    missing = [pair for pair in pairs if worth(counts[pair], tower) and kept.read(benchmark, *pair) is None]
    if not missing:
        return
    asked = {"model": str(path), "digest": handed_out(model), "device": context.device}
    asked |= {"benchmark": str(benchmark.folder.absolute()), "images": benchmark.digest}
    missing.sort(key=lambda pair: -counts[pair])
    by_name = {f"{task} {split}": (task, split) for task, split in missing}

    def take(task: WorkerTask, answer: Plain) -> None:
        kept.keep(benchmark, *by_name[task.name], _answered(answer), tower)

    def ask(name: str) -> Plain:
        task, split = by_name[name]
        return {**asked, "name": name, "task": task, "split": split}

    tasks = [
        WorkerTask(name, partial(ask, name), counts[pair], detail=benchmark.task(pair[0]).title)
        for name, pair in by_name.items()
    ]
    try:
        with pools.opened(spec, context.warn, context.device) as workers:
            if workers is not None and same_hardware(workers, context.device, context.warn, "evaluation"):
                FanOut(SCORE, workers, take, None, context, len(tasks)).run(tasks)
    except MergingError as error:
        if isinstance(error, Cancelled) and not isinstance(error, WorkersGone):
            raise
        context.warn(f"Evaluated here, what is left: {error}")


def _answered(answer: Plain) -> Answered:
    try:
        _, features, metadata = tensor_of(answer.get("file", b""), "A worker's answer")
        facts = json.loads(metadata[FACTS])
        return Answered(features, np.array(facts["predicted"], np.int64), np.array(facts["margins"], np.float32))
    except (ValueError, KeyError, TypeError):
        raise WorkerError("A worker answered with something else than features. Restart it.") from None
