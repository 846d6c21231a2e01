"""Entropy, loss with labels and accuracy at marked steps of learning: they show where entropy stops being a guide.

The model of each step is built again from the coefficients that the run stored, and evaluated on a sample of the
choosing half. No image of the reporting half is used, so these numbers may serve to choose a step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch

from merging.base.devices import choose_device
from merging.base.errors import TaskError
from merging.base.numerics.linear_algebra import to_float64, weighted_sum
from merging.base.progress import Meter
from merging.engine.learning.learned_network import LearnedNetwork
from merging.engine.run import edited_tensors
from merging.engine.run_inputs import RunInputs
from merging.methods.learning import entropies, log_predictions
from merging.methods.shared.coefficients import TASK
from merging.study.analysis.measurement_subject import MeasurementResult, Subject
from merging.study.previews.preview_samples import HALF, PreviewSample, sample_tasks
from merging.tasks.context import Context

if TYPE_CHECKING:
    from merging.engine.stream import Stream
    from merging.images.benchmarks.benchmark import Benchmark
    from merging.study.previews.preview_samples import SampledTask
    from merging.study.runs.run import Run

HISTORY_TABLE = "coefficient_steps"  # the table of a run
LOSSES_TABLE = "losses"  # the table that is measured
COLUMNS = ("step", "task", "entropy", "loss", "accuracy", "n")
MAX_STEPS = 6  # the most steps that are evaluated
SAMPLE = PreviewSample(256)  # images of every merged task
BUILDING, JUDGING = "Building the model of a step", "Judging the model of a step"
NO_HISTORY_MESSAGE = (
    "This run stored no coefficients along its steps, so the model of an earlier step cannot be built. Runs that learn "
    "coefficients store them."
)


def measure_along_steps(subject: Subject, context: Context) -> MeasurementResult:
    """The table "losses": step, task, entropy and loss (means over images, nats), accuracy (a fraction), n (images).

    The models are those that learning had at these steps: before coefficients are shrunk, before edits of the merged
    model and rounding to the dtype of its file, and without modules.

    Raises:
        CheckpointError: a checkpoint of the run is missing or has changed.
        TaskError: the run stored no coefficients, or the benchmark does not fit its models.
    """
    history = read_coefficients(subject.store.get_run(subject.run_id))
    opened, steps = subject.checkpoints_on_benchmark, mark_steps(history["step"])
    all_tasks = sample_tasks(subject.benchmark, SAMPLE)
    sampled_tasks = {key: task for key, task in all_tasks.items() if key in opened.experts and len(task.labels)}
    inputs = RunInputs(opened.pretrained, opened.experts, None, choose_device(context.device))
    images = sum(len(task.labels) for task in sampled_tasks.values())
    work = len(steps) * (inputs.work + images * sum(inputs.numels))
    meter, exemplars = context.meter(work), subject.recipe.exemplars
    rows = []
    with edited_tensors(
        subject.recipe, opened.pretrained, opened.experts, layer_inputs=None,
        exemplars=subject.benchmark.labeled_exemplars(exemplars.per_task, exemplars.seed) if exemplars else None,
        device=inputs.device, meter=meter, phase=BUILDING, only=[p.name for p in inputs.parameters],
    ) as slots:  # fmt: skip
        network = LearnedNetwork(inputs, ())
        for step in steps:
            build_merged(network, slots, group_by_tensor(history[history["step"] == step], slots.experts))
            for key, task in sampled_tasks.items():
                rows.append((step, key, *score_task(network, task, subject.benchmark, meter), len(task.labels)))
    opened.raise_if_changed()
    notes = {"split": HALF, "sample_seed": SAMPLE.seed, "images": images, "steps": len(steps)}
    return MeasurementResult({LOSSES_TABLE: pd.DataFrame(rows, columns=list(COLUMNS))}, notes)


def read_coefficients(run: Run) -> pd.DataFrame:
    """The coefficients that a run stored: step, expert, tensor, coefficient. Raises TaskError if it stored none."""
    if HISTORY_TABLE not in run.tables:
        raise TaskError(NO_HISTORY_MESSAGE)
    return run.table(HISTORY_TABLE)


def mark_steps(steps: Sequence[int] | pd.Series) -> list[int]:
    """At most ``MAX_STEPS`` of these steps at even distances, the first and the last among them."""
    distinct = np.unique(np.asarray(steps, np.int64))
    positions = np.linspace(0, len(distinct) - 1, min(MAX_STEPS, len(distinct))).round().astype(int)
    return [int(step) for step in distinct[positions]]


def group_by_tensor(rows: pd.DataFrame, experts: Sequence[str]) -> dict[str, list[float]]:
    """{tensor: a coefficient for each expert} of one step; the empty name stands for all tensors."""
    return {
        str(tensor): tensor_rows.set_index("expert")["coefficient"].reindex(list(experts)).tolist()
        for tensor, tensor_rows in rows.groupby("tensor", sort=False)
    }


def build_merged(network: LearnedNetwork, slots: Stream, coefficients: Mapping[str, Sequence[float]]) -> None:
    """Write pretrained weights plus the weighted sum of task vectors into a network; other tensors stay unchanged."""
    for slot in slots:
        weights = coefficients.get(slot.name, coefficients.get(TASK))  # TASK: the empty name, for all tensors
        if weights is not None:
            network.write(slot.name, slot.pretrained + weighted_sum(slot.task_vectors, weights))


def score_task(
    network: LearnedNetwork, task: SampledTask, benchmark: Benchmark, meter: Meter
) -> tuple[float, float, float]:
    """Mean entropy and mean cross-entropy with the labels, in nats, and accuracy (a fraction) on a task's images."""
    head, scale = network.to_device(benchmark.load_head(task.key)), benchmark.logit_scale
    scalars = sum(weight.numel() for weight in network.weights.values())
    totals = np.zeros(3)
    for batch in np.array_split(np.arange(len(task.labels)), -(-len(task.labels) // network.micro_batch)):
        with torch.no_grad():
            features = network.features(benchmark.preprocess(task.images[batch]))
            log_shares = to_float64(log_predictions(features, head, scale))
            uncertainty = to_float64(entropies(features, head, scale))
        labels = torch.from_numpy(task.labels[batch]).to(log_shares.device)
        is_right = log_shares.argmax(dim=1) == labels
        losses = -log_shares.gather(1, labels[:, None])
        totals += [float(numbers.sum().cpu()) for numbers in (uncertainty, losses, is_right)]
        meter.advance(len(batch) * scalars, JUDGING, task.key)
    entropy, loss, accuracy = (totals / len(task.labels)).tolist()
    return entropy, loss, accuracy


def find_turning_points(losses: pd.DataFrame) -> pd.DataFrame:
    """The tasks whose loss rises after its minimum while entropy still falls: task, step, entropy and loss.

    step is that of the minimum; entropy and loss are their changes from there to the last step (nats). The largest
    change of loss comes first. ``losses`` is the table "losses" of ``measure_along_steps``.
    """
    rows = []
    for task, task_rows in losses.sort_values("step").groupby("task", sort=False):
        loss, entropy = task_rows["loss"].to_numpy(np.float64), task_rows["entropy"].to_numpy(np.float64)
        lowest = int(loss.argmin())
        if loss[-1] > loss[lowest] and entropy[-1] < entropy[lowest]:
            step = int(task_rows["step"].to_numpy()[lowest])
            rows.append((task, step, entropy[-1] - entropy[lowest], loss[-1] - loss[lowest]))
    table = pd.DataFrame(rows, columns=["task", "step", "entropy", "loss"])
    return table.sort_values("loss", ascending=False, ignore_index=True)
