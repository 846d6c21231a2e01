"""What a run takes every image of the reporting half for, in a form small enough to keep: a few bytes an image.

They come out of the same code as the run's scores, so their accuracies are the scores. A merge that gives one model per
task is asked as it was scored: on its own tasks each model answers for itself, on the others all of them do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from merging.analysis.context import MeasurementContext, MeasurementResult
from merging.analysis.stored import Measured
from merging.errors import TaskError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from merging.benchmarks.benchmark import Benchmark
    from merging.benchmarks.evaluate import EvaluatedModel
    from merging.checkpoints.checkpoint import Checkpoint

SPLIT = "reporting"
PREDICTING = "predictions"  # a phase
MERGED = "merged"  # what a run with a single model calls it
FARTHEST = 2.0  # two cosines differ by no more


def measure_predictions(subject: MeasurementContext) -> MeasurementResult:
    """The arrays "predicted" (class, uint16) and "margin" (float16) over all images, and what of them is whose.

    The table "answers" has a row for each model and data set, with the place of its first image in the arrays, n and
    correct. A margin is the cosine of the right class minus the largest other one. The note "differing" counts the
    images by which correct is off the stored scores, which only another processor's rounding explains.

    Raises:
        CheckpointError, TaskError: the model cannot be read, or cannot be shown these images.
    """
    from merging.benchmarks.evaluate import answers

    benchmark, phases = subject.benchmark, subject.phases({PREDICTING: 1.0})
    rows: list[tuple[str, str, int, int, int]] = []
    predicted: list[NDArray[np.uint16]] = []
    margins: list[NDArray[np.float16]] = []
    first = 0
    with subject.models(phases) as models:
        work, tell = _parts(models, subject), phases.callback(PREDICTING)
        for answer in answers(work, benchmark, (SPLIT,), subject.device, tell, subject.cancel):
            rows.append((answer.model or MERGED, answer.task.key, first, answer.n, answer.correct))
            predicted.append(answer.predicted.astype(np.uint16))
            margins.append(margin(answer.features, benchmark.head(answer.task.key), answer.labels))
            first += answer.n
    table = pd.DataFrame(rows, columns=["model", "task", "first", "n", "correct"])
    arrays = {"predicted": np.concatenate(predicted), "margin": np.concatenate(margins)}
    notes = {"split": SPLIT, "images": sum(benchmark.count(task.key, SPLIT) for task in benchmark.tasks)}
    return MeasurementResult({"answers": table}, {**notes, "differing": _differing(table, subject)}, arrays)


def _parts(models: Mapping[str, Checkpoint], subject: MeasurementContext) -> list[EvaluatedModel]:
    """The models, each with the data sets that it answers."""
    from merging.benchmarks.evaluate import EvaluatedModel, per_task_parts

    benchmark = subject.benchmark
    if reason := benchmark.misfit(next(iter(models.values()))):
        raise TaskError(f"It cannot be measured on this benchmark: {reason}")
    if subject.store.run(subject.run_id).per_task:
        return per_task_parts(models, benchmark)
    return [EvaluatedModel("", models[MERGED], [task.key for task in benchmark.tasks])]


def margin(features: Tensor, head: Tensor, labels: NDArray[np.int64]) -> NDArray[np.float16]:
    """By how much the cosine of the right class exceeds the largest other one (n,); above zero where it is found."""
    import torch

    from merging.benchmarks.evaluate import cosines

    found, right = cosines(features, head), torch.from_numpy(labels)[:, None]
    own = found.gather(1, right)[:, 0]
    other = found.scatter(1, right, -torch.inf).amax(dim=1)
    return (own - other).clamp(-FARTHEST, FARTHEST).numpy().astype(np.float16)


def _differing(table: pd.DataFrame, subject: MeasurementContext) -> int:
    """Images by which the answers are off the scores of the run, 0 if it has none on this benchmark."""
    run = subject.store.run(subject.run_id)
    if run.scores is None or run.benchmark != subject.benchmark.digest:
        return 0
    stored = run.scores[run.scores["split"] == SPLIT].set_index("task")["accuracy"]
    own = table.assign(right=table["correct"] / table["n"]).groupby("task", sort=False)[["right", "n"]].mean()
    return int(((own["right"] - stored.reindex(own.index)).abs() * own["n"]).round().sum())


# Reading them back


@dataclass(frozen=True)
class Answers:
    """What each of m models takes the n images of one data set for; most often there is one model."""

    models: tuple[str, ...]
    predicted: NDArray[np.int64]  # (m, n)
    margin: NDArray[np.float64]  # (m, n)
    labels: NDArray[np.int64]  # (n,)

    @property
    def right(self) -> NDArray[np.bool_]:
        """Whether a model finds an image's class (m, n)."""
        found: NDArray[np.bool_] = self.predicted == self.labels
        return found


def of_data_sets(found: Measured, benchmark: Benchmark) -> dict[str, Answers]:
    """{data set: the answers}, in the order of the benchmark. Raises StoreError if the measurement is gone."""
    table, predicted, margins = found.table("answers"), found.array("predicted"), found.array("margin")
    answered = {}
    for task in benchmark.tasks:
        rows = table[table["task"] == task.key]
        if rows.empty:
            continue
        spans = [slice(int(a), int(a) + int(n)) for a, n in zip(rows["first"], rows["n"], strict=True)]
        answered[task.key] = Answers(
            tuple(rows["model"].astype(str)),
            np.stack([predicted[span] for span in spans]).astype(np.int64),
            np.stack([margins[span] for span in spans]).astype(np.float64),
            benchmark.images(task.key, SPLIT)[1],
        )
    return answered


def scores(found: Measured, benchmark: Benchmark) -> pd.DataFrame:
    """Scores of the reporting half, row by row as the evaluation gives them."""
    from merging.benchmarks.evaluate import score_table

    rows: list[dict[str, Any]] = found.table("answers").to_dict("records")  # type: ignore[assignment]
    several = any(row["model"] != MERGED for row in rows)
    return score_table(
        (str(row["model"]) if several else "", benchmark.task(str(row["task"])), SPLIT, row["correct"], row["n"])
        for row in rows
    )
