"""Features of images out of domain, how well a model separates their classes, and maps of them.

Every model gets the same images: those of the data sets that no expert was trained on, a seeded draw balanced by class.
Features are computed once per model and stored beside its run; everything else is computed from them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from merging.base.errors import TaskError
from merging.engine.evaluation.image_features import ImageModel, ModulesOfTask, compute_features, predict
from merging.study.analysis.measurement_subject import MeasurementResult, Subject
from merging.study.analysis.separability import separability
from merging.tasks.context import Context

if TYPE_CHECKING:
    from merging.images.benchmarks.benchmark import Benchmark
    from merging.models.checkpoint import Checkpoint

SPLIT, TOTAL, SEED = "choosing", 1500, 0  # the images: at most so many in all, a seeded draw
TOGETHER = "all"  # the name of the map of all data sets; the others are named after their data set
EXTRACTING = "features"  # stages


def out_of_domain_keys(benchmark: Benchmark) -> list[str]:
    """Keys of the data sets that are out of domain for every run: those without an expert.

    Raises:
        TaskError: there is none.
    """
    keys = [task.key for task in benchmark.tasks if not task.has_expert]
    if not keys:
        raise TaskError("Every data set of this benchmark has an expert, so none is out of domain for all runs.")
    return keys


def sample_images(benchmark: Benchmark) -> dict[str, NDArray[np.intp]]:
    """{data set: places of its images in the split}, equally many of each class if there are enough."""
    keys = out_of_domain_keys(benchmark)
    chosen = {}
    for key in keys:
        labels = benchmark.labels(key, SPLIT)
        order = np.random.default_rng(SEED).permutation(len(labels))
        each = max(1, TOTAL // len(keys) // len(benchmark.task(key).class_names))
        places = [order[labels[order] == label][:each] for label in np.unique(labels)]
        chosen[key] = np.sort(np.concatenate(places)) if places else np.empty(0, np.intp)
    return chosen


def image_name(task: str, position: int) -> str:
    """The name of an image in all tables."""
    return f"{task}:{position}"


# Features


def measure_features(subject: Subject, context: Context) -> MeasurementResult:
    """The array "features" (n, d), in half precision, with the tables "images" and "separability" of one model.

    All is computed from the stored features. A row of "images" has image, task, truth and predicted (class
    names), correct and length (of the raw features), in the order of the array. "separability" has a row per data set,
    and one for all together, where a class is a class of a data set.

    Raises:
        CheckpointError, TaskError: the model cannot be read, or does not fit these images.
    """
    benchmark, stages = subject.benchmark, subject.split_context(context, {EXTRACTING: 1.0})
    chosen = sample_images(benchmark)
    with _find_model(subject, stages) as model:
        rows, tables = _extract(model, subject, chosen, stages[EXTRACTING])
    rows, kept = rows.astype(np.float32), rows
    images = pd.concat(tables, ignore_index=True)
    labels = images["task"] + ":" + images["truth"]
    parts = {key: (images["task"] == key).to_numpy() for key in chosen}
    parts[TOGETHER] = np.ones(len(images), bool)
    numbers = [(key, *separability(rows[at], labels[at].to_numpy(str))) for key, at in parts.items()]
    table = pd.DataFrame(numbers, columns=["task", "silhouette", "correct", "scatter", "classes", "n"])
    notes = {"images": len(images), "data_sets": len(chosen), "split": SPLIT, "seed": SEED}
    return MeasurementResult({"images": images, "separability": table}, notes, {"features": kept})


@contextmanager
def _find_model(subject: Subject, stages: Mapping[str, Context]) -> Iterator[Checkpoint]:
    """The single model of a run, or a reference model."""
    run = subject.store.get_run(subject.run_id)
    if run.per_task:
        raise TaskError("This run has one model per task, so none of them is its model out of domain.")
    with subject.models(stages) as models:
        if reason := subject.benchmark.misfit(models["merged"]):
            raise TaskError(f"It cannot be measured on this benchmark: {reason}")
        yield models["merged"]


def _extract(
    model: Checkpoint, subject: Subject, chosen: Mapping[str, NDArray[np.intp]], context: Context
) -> tuple[NDArray[np.floating[Any]], list[pd.DataFrame]]:
    """Features (n, d) of all images, and the rows about them of each data set."""
    from merging.base.devices import choose_device
    from merging.images.image_encoder import Encoder

    benchmark = subject.benchmark
    encoder: ImageModel = Encoder.from_checkpoint(
        model, choose_device(context.device), fallback=benchmark.pretrained_tower
    )
    if subject.modules is not None:  # a module of a task is not used: these images are of none of the merged ones
        encoder = ModulesOfTask(subject.modules.on(choose_device(context.device)), "")
    meter = context.meter(sum(map(len, chosen.values())))
    feature_rows, tables = [], []
    for key, places in chosen.items():
        images, labels = benchmark.images(key, SPLIT)
        task = benchmark.task(key)
        rows = compute_features(encoder, benchmark.preprocess(images[places]), meter, "Extracting features", task.title)
        names = np.array(task.class_names, dtype=object)
        predicted = predict(rows, benchmark.head(key))
        feature_rows.append(rows.numpy())
        tables.append(
            pd.DataFrame(
                {
                    "image": [image_name(key, int(place)) for place in places],
                    "task": key,
                    "truth": names[labels[places]],
                    "predicted": names[predicted],
                    "correct": predicted == labels[places],
                    "length": np.linalg.norm(feature_rows[-1].astype(np.float64), axis=1),
                }
            )
        )
    return to_half_precision(np.concatenate(feature_rows)), tables


def to_half_precision(rows: NDArray[np.float32]) -> NDArray[np.floating[Any]]:
    """Features for storing: with the 11 bits of half precision, unless one is too large for that."""
    return rows if np.abs(rows).max(initial=0) > np.finfo(np.float16).max else rows.astype(np.float16)
