"""The true map: how accuracy changes when a tensor, a block or a kind of tensor is put back to pretrained.

Each change is made and the model is run on a sample of the choosing half. Only the interval is estimated, by a paired
bootstrap on the same images. If a merge has one model per task, each of its models is changed, and the merge is
evaluated as usual: each model alone on its own task, the mean over all of them on the other tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from merging.base.devices import choose_device
from merging.base.progress import Meter
from merging.engine.evaluation.image_features import predict
from merging.images.benchmarks.paired_scores import H_SCORE, compare_models
from merging.images.benchmarks.resampled_tasks import DRAWS
from merging.models.checkpoint import Checkpoint
from merging.study.analysis.measurement_subject import MeasurementResult, Subject
from merging.study.measurements import put_back_images
from merging.study.measurements.put_back_variants import PutBackTower, PutBackVariant, list_variants
from merging.tasks.context import Context

if TYPE_CHECKING:
    from collections.abc import Callable

    from merging.engine.evaluation.evaluate import EvaluatedModel

COLUMNS = ("level", "name", "over", "group", "before", "after", "change", "low", "high", "margin", "n")
COLUMN_NAMES = {"reference": "before", "accuracy": "after", "difference": "change"}
CHANGES_TABLE = "changes"  # the table
RUNNING_PHASE = "running variants"  # a phase
Floats = NDArray[np.float64]
# By variant (None: the merged model) and task, an array (2, n) for each model that was run: whether its answer to each
# image is right (1 or 0), and the margin (a cosine).
VariantAnswers = dict[PutBackVariant | None, dict[str, list[Floats]]]


def measure_put_back(subject: Subject, context: Context) -> MeasurementResult:
    """The table "changes": a row for each change and average or task, in accuracy (fractions) and margin (cosines).

    level (tensor, block, kind) and name identify the tensors that are put back. over is "in domain", "out of domain" or
    a task; group is "average" or the task's domain. before and after are accuracies, change is their difference with
    the 95 % interval low to high, margin the change of the mean margin, n the number of images.

    Raises:
        CheckpointError, TaskError: a checkpoint of the run cannot be read, or does not fit the benchmark's images.
    """
    subject.refuse_modules()
    pretrained, sample = subject.checkpoints.pretrained, put_back_images.sample_images(subject.benchmark)
    in_domain = [task for task in sample if task in subject.checkpoints.experts]
    notes = {**put_back_images.sample_notes(sample, in_domain), "resamples": DRAWS}
    stages = subject.split_context(context, {RUNNING_PHASE: 4.0})

    def make_result(answers: VariantAnswers) -> MeasurementResult:
        return MeasurementResult({CHANGES_TABLE: build_change_table(answers, in_domain)}, notes)

    with subject.open_models(stages) as models:
        evaluated_models = put_back_images.list_evaluated_models(models, subject)
        meter = stages[RUNNING_PHASE].meter(0)  # ``answer_variants`` sets the total
        return make_result(
            answer_variants(
                evaluated_models,
                pretrained,
                sample,
                context.device,
                meter,
                lambda partial: subject.show_partial(make_result(partial)),
            )
        )


def answer_variants(
    evaluated_models: Sequence[EvaluatedModel],
    pretrained: Checkpoint,
    sample: put_back_images.SampleByTask,
    device: str,
    meter: Meter,
    show: Callable[[VariantAnswers], None] | None = None,
) -> VariantAnswers:
    """The answers of every model unchanged, and with every variant's tensors put back.

    ``show`` is called with the partial answers after each section of the network. It is not called if the merge has
    several models, since the answers of some of them are not the merge's.
    """
    variants, answers = list_variants(pretrained.parameters), VariantAnswers()
    counts = [
        sum(len(sample[task].labels) for task in evaluated.tasks if task in sample) for evaluated in evaluated_models
    ]
    for evaluated in evaluated_models:
        tower = PutBackTower.load(evaluated.open(), pretrained, choose_device(device))
        meter.total = max(meter.total, sum(tower.count_work(variants, count) for count in counts))
        tasks = [task for task in evaluated.tasks if task in sample]
        section = 0
        for variant, features in tower.compute_features(variants, put_back_images.image_batches(sample, tasks), meter):
            if (
                show is not None
                and len(evaluated_models) == 1
                and variant is not None
                and variant.first_section != section
            ):
                show(answers)
                section = variant.first_section
            for task, rows in put_back_images.split_by_task(features, sample, tasks).items():
                right = predict(rows, sample[task].head) == sample[task].labels
                numbers = np.stack([right, sample[task].margins(rows).numpy()]).astype(np.float64)
                answers.setdefault(variant, {}).setdefault(task, []).append(numbers)
    return answers


def build_change_table(answers: VariantAnswers, in_domain: Sequence[str]) -> pd.DataFrame:
    """The table of ``measure_put_back`` from the answers; ``in_domain`` are the tasks in domain."""
    means = {
        variant: {task: np.mean(by_model, axis=0) for task, by_model in by_task.items()}
        for variant, by_task in answers.items()
    }
    merged_means = means[None]
    frames = []
    for variant, variant_means in means.items():
        if variant is not None:
            right_after, right_before = (
                {task: numbers[0] for task, numbers in numbers_by_task.items()}
                for numbers_by_task in (variant_means, merged_means)
            )
            rows = compare_models(right_after, right_before, in_domain)
            rows = rows[rows["over"] != H_SCORE].rename(columns=COLUMN_NAMES)
            margin = put_back_images.average_tasks(
                {task: (variant_means[task][1] - merged_means[task][1]).mean() for task in merged_means}, in_domain
            )
            rows["margin"] = [float(margin[pair]) for pair in zip(rows["over"], rows["group"], strict=True)]
            frames.append(rows.assign(level=variant.level, name=variant.name))
    joined = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=list(COLUMNS))
    return joined[list(COLUMNS)]
