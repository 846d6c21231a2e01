"""The predictions of a run for every image of the reporting half, in a few bytes per image.

The same code computes the run's scores, so the accuracies are the scores. A merge with one model per task predicts as
it was scored: each model alone on its own task, all of them on the other tasks. Modules on top of a model are used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from merging.base.errors import TaskError
from merging.engine.outputs import MERGED
from merging.study.analysis.measurement_store import StoredMeasurement
from merging.study.analysis.measurement_subject import MeasurementResult, Subject
from merging.tasks.context import Context

if TYPE_CHECKING:
    from collections.abc import Mapping

    from merging.engine.evaluation.evaluate import EvaluatedModel
    from merging.images.benchmarks.benchmark import Benchmark
    from merging.models.checkpoint import Checkpoint

SPLIT = "reporting"
PREDICTING_PHASE = "predictions"  # a phase


def measure_predictions(subject: Subject, context: Context) -> MeasurementResult:
    """The arrays "predicted" (class, uint16) and "margin" (float16) over all images, and the table "answers".

    "answers" has a row for each model and data set, with the index of its first image in the arrays, n and correct. A
    margin is the cosine of the right class minus the largest other one. The note "differing" counts the images by which
    correct differs from the stored scores; only the rounding of another processor explains a difference.

    Raises:
        CheckpointError, TaskError: the model cannot be read, or does not fit these images.
    """
    from merging.engine.evaluation.evaluate import predict_splits

    benchmark, stages = subject.benchmark, subject.split_context(context, {PREDICTING_PHASE: 1.0})
    rows: list[tuple[str, str, int, int, int]] = []  # model, task, first, n, correct
    predicted: list[NDArray[np.uint16]] = []
    margins: list[NDArray[np.float16]] = []
    first_index = 0
    with subject.open_models(stages) as models:
        for answer in predict_splits(
            list_evaluated_models(models, subject), benchmark, (SPLIT,), stages[PREDICTING_PHASE]
        ):
            rows.append((answer.model or MERGED, answer.task.key, first_index, answer.n, answer.correct))
            predicted.append(answer.predicted.astype(np.uint16))
            margins.append(answer.margins.astype(np.float16))
            first_index += answer.n
    table = pd.DataFrame(rows, columns=["model", "task", "first", "n", "correct"])
    arrays = {"predicted": np.concatenate(predicted), "margin": np.concatenate(margins)}
    notes = {"split": SPLIT, "images": sum(benchmark.count_images(task.key, SPLIT) for task in benchmark.tasks)}
    return MeasurementResult({"answers": table}, {**notes, "differing": _count_differing(table, subject)}, arrays)


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


def _count_differing(table: pd.DataFrame, subject: Subject) -> int:
    """The number of images by which the answers differ from the run's scores; 0 without scores on this benchmark."""
    run = subject.store.get_run(subject.run_id)
    if run.scores is None or run.benchmark != subject.benchmark.digest:
        return 0
    stored = run.scores[run.scores["split"] == SPLIT].set_index("task")["accuracy"]
    answered_scores = (
        table.assign(right=table["correct"] / table["n"]).groupby("task", sort=False)[["right", "n"]].mean()
    )
    return int(
        ((answered_scores["right"] - stored.reindex(answered_scores.index)).abs() * answered_scores["n"]).round().sum()
    )


# Reading them back


@dataclass(frozen=True)
class RunAnswers:
    """The classes that m models predict for the n images of a data set; m > 1 only if the run has several models."""

    models: tuple[str, ...]
    predicted: NDArray[np.int64]  # (m, n)
    margin: NDArray[np.float64]  # (m, n)
    labels: NDArray[np.int64]  # (n,)

    @property
    def is_right(self) -> NDArray[np.bool_]:
        """Whether each model predicts each image's class (m, n)."""
        correct: NDArray[np.bool_] = self.predicted == self.labels
        return correct


def read_answers(stored: StoredMeasurement, benchmark: Benchmark) -> dict[str, RunAnswers]:
    """{data set: the answers}, in the benchmark's order. Raises StoreError if a part of the measurement is missing."""
    table, predicted, margins = stored.table("answers"), stored.array("predicted"), stored.array("margin")
    answers_by_task = {}
    for task in benchmark.tasks:
        rows = table[table["task"] == task.key]
        if rows.empty:
            continue
        spans = [slice(int(a), int(a) + int(n)) for a, n in zip(rows["first"], rows["n"], strict=True)]
        answers_by_task[task.key] = RunAnswers(
            tuple(rows["model"].astype(str)),
            np.stack([predicted[span] for span in spans]).astype(np.int64),
            np.stack([margins[span] for span in spans]).astype(np.float64),
            benchmark.load_labels(task.key, SPLIT),
        )
    return answers_by_task


def score_rows(stored: StoredMeasurement, benchmark: Benchmark) -> pd.DataFrame:
    """The scores of the reporting half, as a table of ``evaluate``."""
    from merging.engine.evaluation.evaluate import score_table

    rows: list[dict[str, Any]] = stored.table("answers").to_dict("records")  # type: ignore[assignment]
    has_several_models = any(row["model"] != MERGED for row in rows)
    return score_table(
        (
            str(row["model"]) if has_several_models else "",
            benchmark.find_task(str(row["task"])),
            SPLIT,
            row["correct"],
            row["n"],
        )
        for row in rows
    )
