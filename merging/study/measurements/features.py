"""Features of images out of domain or in domain, how well a model separates their classes, and maps of them.

Every model gets the same images: a seeded sample, balanced by class, of the data sets that no expert was trained on, or
of those that have an expert. Features are computed once per model and stored beside its run; everything else is
computed from them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from merging.base.errors import TaskError
from merging.engine.evaluation.image_features import ImageModel, ModulesOfTask, compute_features, predict
from merging.study.analysis.measurement_subject import MeasurementResult, Subject
from merging.study.analysis.separability import separability, unit_rows, vote
from merging.tasks.context import Context

if TYPE_CHECKING:
    from merging.images.benchmarks.benchmark import Benchmark
    from merging.models.checkpoint import Checkpoint
    from merging.study.analysis.measurement_store import StoredMeasurement

SPLIT, MAX_IMAGES, SEED = "choosing", 1500, 0  # the images: a seeded sample of at most MAX_IMAGES
ALL_DATA_SETS = "all"  # the name of the map of all data sets; every other map is named after its data set
EXTRACTING_STAGE = "features"  # stages


def list_out_of_domain_keys(benchmark: Benchmark) -> list[str]:
    """Keys of the data sets that are out of domain for every run: those without an expert.

    Raises:
        TaskError: every data set has an expert.
    """
    keys = [task.key for task in benchmark.tasks if not task.has_expert]
    if not keys:
        raise TaskError("Every data set of this benchmark has an expert, so none is out of domain for all runs.")
    return keys


def list_in_domain_keys(benchmark: Benchmark) -> list[str]:
    """Keys of the data sets that have an expert; a run that merges fewer experts has only theirs in domain.

    Raises:
        TaskError: no data set has an expert.
    """
    keys = [task.key for task in benchmark.tasks if task.has_expert]
    if not keys:
        raise TaskError("No data set of this benchmark has an expert, so none is in domain.")
    return keys


def sample_images(benchmark: Benchmark, keys: Sequence[str]) -> dict[str, NDArray[np.intp]]:
    """{data set: indices (n,) of the sampled images in the split}, equally many of each class if there are enough."""
    indices_by_task = {}
    for key in keys:
        labels = benchmark.load_labels(key, SPLIT)
        order = np.random.default_rng(SEED).permutation(len(labels))
        per_class = max(1, MAX_IMAGES // len(keys) // len(benchmark.find_task(key).class_names))
        by_class = [order[labels[order] == label][:per_class] for label in np.unique(labels)]
        indices_by_task[key] = np.sort(np.concatenate(by_class)) if by_class else np.empty(0, np.intp)
    return indices_by_task


def image_name(task: str, position: int) -> str:
    """The name of an image in tables, "TASK:POSITION"."""
    return f"{task}:{position}"


# Features


def measure_features(subject: Subject, context: Context) -> MeasurementResult:
    """The features of images out of domain; see ``_measure_images``."""
    return _measure_images(subject, context, list_out_of_domain_keys(subject.benchmark))


def measure_features_in_domain(subject: Subject, context: Context) -> MeasurementResult:
    """The features of images in domain; see ``_measure_images``. A task that has a module on the model gets it."""
    return _measure_images(subject, context, list_in_domain_keys(subject.benchmark))


def _measure_images(subject: Subject, context: Context, keys: Sequence[str]) -> MeasurementResult:
    """The array "features" (n, d), in half precision, with the tables "images" and "separability" of one model.

    "images" has a row for each row of the array, in its order: image, task, truth and predicted (class names), correct
    and length (of the raw features). "separability" is computed from the stored features. It has a row for each data
    set and one for all together, in which equal class names of two data sets are two classes.

    Raises:
        CheckpointError, TaskError: the model cannot be read, or does not fit these images.
    """
    benchmark, stages = subject.benchmark, subject.split_context(context, {EXTRACTING_STAGE: 1.0})
    positions = sample_images(benchmark, keys)
    with open_single_model(subject, stages) as model:
        rows, tables = _extract_features(model, subject, positions, stages[EXTRACTING_STAGE])
    stored_rows, rows = rows, rows.astype(np.float32)
    images = pd.concat(tables, ignore_index=True)
    numbers = [
        (key, *separability(rows[is_selected], _label_images(images)[is_selected]))
        for key in (*positions, ALL_DATA_SETS)
        for is_selected in [select_images(images, key)]
    ]
    table = pd.DataFrame(numbers, columns=["task", "silhouette", "correct", "scatter", "classes", "n"])
    notes = {"images": len(images), "data_sets": len(positions), "split": SPLIT, "seed": SEED}
    return MeasurementResult({"images": images, "separability": table}, notes, {"features": stored_rows})


def select_images(images: pd.DataFrame, key: str) -> NDArray[np.bool_]:
    """Whether each row (n,) of the table "images" is of a data set, or of all of them (``ALL_DATA_SETS``)."""
    selected: NDArray[np.bool_] = (
        np.ones(len(images), bool) if key == ALL_DATA_SETS else images["task"].to_numpy() == key
    )
    return selected


def _label_images(images: pd.DataFrame) -> NDArray[np.str_]:
    """The labels (n,) of the table "images": equal class names of two data sets are two classes."""
    labels: NDArray[np.str_] = (images["task"] + ":" + images["truth"]).to_numpy(str)
    return labels


def vote_on_images(measured: StoredMeasurement, key: str) -> NDArray[np.float64]:
    """The votes (n,), see ``separability.vote``, on the images of a data set, or of all (``ALL_DATA_SETS``)."""
    images = measured.table("images")
    is_selected = select_images(images, key)
    rows = unit_rows(measured.array("features")[is_selected].astype(np.float32))
    return vote(rows, np.unique(_label_images(images)[is_selected], return_inverse=True)[1])


@contextmanager
def open_single_model(subject: Subject, stages: Mapping[str, Context]) -> Iterator[Checkpoint]:
    """The single model of a run, or a reference model."""
    run = subject.store.get_run(subject.run_id)
    if run.per_task:
        raise TaskError("This run has one model per task, so there is no single model to measure.")
    with subject.open_models(stages) as models:
        if reason := subject.benchmark.describe_misfit(models["merged"]):
            raise TaskError(f"The run cannot be measured on this benchmark: {reason}")
        yield models["merged"]


def _extract_features(
    model: Checkpoint, subject: Subject, positions_by_task: Mapping[str, NDArray[np.intp]], context: Context
) -> tuple[NDArray[np.floating[Any]], list[pd.DataFrame]]:
    """Features (n, d) of all chosen images, and the rows of the table "images" for each data set."""
    from merging.base.devices import choose_device
    from merging.images.image_encoder import Encoder

    benchmark = subject.benchmark
    encoder: ImageModel = Encoder.from_checkpoint(
        model, choose_device(context.device), fallback=benchmark.pretrained_tower
    )
    modules = None if subject.modules is None else subject.modules.on(choose_device(context.device))
    meter = context.meter(sum(map(len, positions_by_task.values())))
    feature_rows, tables = [], []
    for key, positions in positions_by_task.items():
        images, labels = benchmark.load_images(key, SPLIT)
        task = benchmark.find_task(key)
        if modules is not None:  # out of domain, no task's module is used
            encoder = ModulesOfTask(modules, key if task.has_expert else "")
        rows = compute_features(
            encoder, benchmark.preprocess(images[positions]), meter, "Extracting features", task.title
        )
        names = np.array(task.class_names, dtype=object)
        predicted = predict(rows, benchmark.load_head(key))
        feature_rows.append(rows.numpy())
        tables.append(
            pd.DataFrame(
                {
                    "image": [image_name(key, int(position)) for position in positions],
                    "task": key,
                    "truth": names[labels[positions]],
                    "predicted": names[predicted],
                    "correct": predicted == labels[positions],
                    "length": np.linalg.norm(feature_rows[-1].astype(np.float64), axis=1),
                }
            )
        )
    return to_half_precision(np.concatenate(feature_rows)), tables


def to_half_precision(rows: NDArray[np.float32]) -> NDArray[np.floating[Any]]:
    """Features (n, d) for storing: in half precision (11 bits), unless a value is too large for it."""
    return rows if np.abs(rows).max(initial=0) > np.finfo(np.float16).max else rows.astype(np.float16)
