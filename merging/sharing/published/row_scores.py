"""Scores of several models on a benchmark at once: each image is decoded once for all models that fit in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from merging.base.devices import choose_device, retry_on_oom
from merging.engine.evaluation.evaluate import (
    EvaluatedModel,
    Evaluation,
    SplitPrediction,
    predict_splits,
    summarize_predictions,
)
from merging.engine.evaluation.stored_features import StoredFeatures
from merging.images.benchmarks.benchmark import SPLITS, Benchmark
from merging.images.benchmarks.image_draws import REPORTING
from merging.sharing.published.accuracy_verdicts import TaskScore
from merging.tasks.context import QUIET, Context

RightAnswers = dict[str, NDArray[np.bool_]]


@dataclass(frozen=True, eq=False)
class ScoredModel:
    """The evaluation of one model."""

    evaluation: Evaluation

    @property
    def right_answers(self) -> RightAnswers:
        """Which answers on the reporting images are right: {task: (n,) bool}."""
        return {one.task: one.is_right[0] for one in self.evaluation.answers if one.split == REPORTING}

    @property
    def scores(self) -> dict[str, TaskScore]:
        """Its accuracies on the reporting images, by task."""
        return read_task_scores(self.evaluation.scores)


def score_together(
    models: Sequence[EvaluatedModel], benchmark: Benchmark, *, context: Context = QUIET
) -> dict[str, ScoredModel]:
    """{name: scores} of models with distinct names, each on its own tasks. Raises Cancelled."""

    def scored_on(on: torch.device) -> dict[str, ScoredModel]:
        by_model: dict[str, list[SplitPrediction]] = {part.name: [] for part in models}
        for prediction in predict_splits(models, benchmark, SPLITS, context.on_device(on)):
            # Without a name, each model gets a table of its own.
            by_model[prediction.model].append(replace(prediction.without_features(), model=""))
        return {name: ScoredModel(summarize_predictions(each)) for name, each in by_model.items()}

    scored, warnings = retry_on_oom(choose_device(context.device), scored_on)
    for sentence in warnings:
        context.warn(sentence)
    return scored


def read_task_scores(table: pd.DataFrame) -> dict[str, TaskScore]:
    """The accuracies on the reporting images in a table of scores, by task."""
    rows = table[table["split"] == REPORTING].to_dict("records")
    return {str(row["task"]): TaskScore(str(row["task"]), float(row["accuracy"]), int(row["n"])) for row in rows}


def read_right_answers(benchmark: Benchmark, features: StoredFeatures) -> RightAnswers | None:
    """{task: (n,) bool}: whether each answer is right, from stored features; None if they lack a task."""
    right: RightAnswers = {}
    for task in benchmark.tasks:
        if (known := features.read(benchmark, task.key, REPORTING)) is None:
            return None
        right[task.key] = known.predicted == benchmark.load_labels(task.key, REPORTING)
    return right
