"""Unit features of all images of the choosing half, among which the page Image searches for neighbors.

They are stored in half precision, so a search needs one pass of one image instead of a pass of every image.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from merging.base.devices import choose_device
from merging.base.errors import TaskError
from merging.images.image_encoder import Encoder
from merging.study.analysis.measurement_subject import MeasurementResult, Subject
from merging.study.one_image.nearest_images import SPLIT, compute_bank
from merging.tasks.context import Context

EXTRACTING = "features of the choosing half"  # a phase


def measure_bank(subject: Subject, context: Context) -> MeasurementResult:
    """The array "features" (N, e) of all data sets, and the table "images" with task, first and n of each.

    Raises:
        CheckpointError, TaskError: the model cannot be read, does not fit the images, or is not a single network.
    """
    subject.refuse_modules()
    if subject.store.get_run(subject.run_id).per_task:
        raise TaskError("This run has one model per task; features are stored only of runs with a single model.")
    benchmark, stages = subject.benchmark, subject.split_context(context, {EXTRACTING: 1.0})
    keys = [task.key for task in benchmark.tasks]
    with subject.open_models(stages) as models:
        if reason := benchmark.describe_misfit(models["merged"]):
            raise TaskError(f"The run cannot be measured on this benchmark: {reason}")
        encoder = Encoder.from_checkpoint(
            models["merged"], choose_device(context.device), fallback=benchmark.pretrained_tower
        )
        counts = [benchmark.count_images(key, SPLIT) for key in keys]
        meter = stages[EXTRACTING].meter(sum(counts))
        bank = compute_bank(encoder, benchmark, keys, meter)
    first_indices = np.cumsum([0, *counts[:-1]])
    images = pd.DataFrame({"task": keys, "first": first_indices, "n": counts})
    return MeasurementResult({"images": images}, {"split": SPLIT, "images": sum(counts)}, {"features": bank.features})
