"""The models on the straight way from the pretrained model to a merged one, on one map of their features.

Each is a real model: its weights are the pretrained ones plus a share of what the merge added, and it reads every
image. For a merge that scales its task vectors, such as task arithmetic, they are those of smaller scalings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from merging.base.devices import choose_device
from merging.engine.evaluation.image_features import compute_features, predict
from merging.images.image_encoder import Encoder
from merging.study.analysis.measurement_subject import MeasurementResult, Subject
from merging.study.analysis.separability import trustworthiness, unit_rows
from merging.study.measurements.features import (
    SEED,
    SPLIT,
    image_name,
    list_in_domain_keys,
    list_out_of_domain_keys,
    open_single_model,
    sample_images,
)
from merging.study.measurements.joint_tsne import NEIGHBORS, fit_joint_map, fit_perplexity
from merging.tasks.context import Context

SHARES = tuple(step / 6 for step in range(7))  # of the merge's change that the models on the way have
MAX_IMAGES = 400
READING_STAGE, MAPPING_STAGE = "reading images", "map"  # stages


def measure_merge_path(subject: Subject, context: Context) -> MeasurementResult:
    """The models on the way with images out of domain; see ``_measure_path``."""
    return _measure_path(subject, context, list_out_of_domain_keys(subject.benchmark))


def measure_merge_path_in_domain(subject: Subject, context: Context) -> MeasurementResult:
    """The models on the way with images in domain; see ``_measure_path``."""
    return _measure_path(subject, context, list_in_domain_keys(subject.benchmark))


def _measure_path(subject: Subject, context: Context, keys: Sequence[str]) -> MeasurementResult:
    """The array "positions" (models, images, 2) on one map, and the tables "images", "answers" and "quality".

    "images" has the images in the order of the array: image, task, truth. "answers" has a row for each model and image:
    share (of the merge's change to the weights), image, predicted and correct. "quality" has a row for each model:
    share, correct, n, and the trustworthiness of its part of the map.

    Raises:
        CheckpointError, TaskError: the model cannot be read, does not fit these images, or has modules on top.
    """
    subject.refuse_modules()
    benchmark = subject.benchmark
    stages = subject.split_context(context, {READING_STAGE: 1.0, MAPPING_STAGE: 2.0})
    sampled = sample_images(benchmark, keys)
    every = -(-sum(map(len, sampled.values())) // MAX_IMAGES)
    positions_by_task = {key: positions[::every] for key, positions in sampled.items()}
    device = choose_device(context.device)
    with open_single_model(subject, stages) as model:
        pretrained, merged = (
            Encoder.from_checkpoint(one, device, fallback=benchmark.pretrained_tower)
            for one in (benchmark.open_pretrained(), model)
        )
    meter = stages[READING_STAGE].meter(len(SHARES) * sum(map(len, positions_by_task.values())))
    encoders, tables, answers = [blend_encoders(pretrained, merged, share) for share in SHARES], [], []
    features: list[list[np.ndarray]] = [[] for _ in SHARES]
    for key, positions in positions_by_task.items():
        task, (images, labels) = benchmark.find_task(key), benchmark.load_images(key, SPLIT)
        names, head = np.array(task.class_names, dtype=object), benchmark.load_head(key)
        images_of_task = benchmark.preprocess(images[positions])
        table = pd.DataFrame({"image": [image_name(key, int(position)) for position in positions], "task": key})
        tables.append(table.assign(truth=names[labels[positions]]))
        for share, encoder, own_features in zip(SHARES, encoders, features, strict=True):
            rows = compute_features(encoder, images_of_task, meter, "Extracting features", task.title)
            predicted = predict(rows, head)
            own_features.append(rows.numpy())
            answers.append(
                table[["image"]].assign(share=share, predicted=names[predicted], correct=predicted == labels[positions])
            )
    stages[MAPPING_STAGE].meter(1).report_part(0, "Computing the map", "all models together")
    return _describe_path(
        [np.concatenate(rows) for rows in features], pd.concat(tables, ignore_index=True),
        pd.concat(answers, ignore_index=True),
    )  # fmt: skip


def blend_encoders(pretrained: Encoder, merged: Encoder, share: float) -> Encoder:
    """The encoder whose weights have a share of the change from the pretrained to the merged ones."""
    if share in {0, 1}:
        return merged if share else pretrained
    tensors = {name: tensor + share * (merged.tensors[name] - tensor) for name, tensor in pretrained.tensors.items()}
    return replace(pretrained, tensors=tensors)


def _describe_path(features: list[np.ndarray], images: pd.DataFrame, answers: pd.DataFrame) -> MeasurementResult:
    """The map of the models on the way, with its tables, from their features (n, d)."""
    positions = fit_joint_map(features)
    quality = [
        (share, int(answers["correct"][answers["share"] == share].sum()), len(rows),
         trustworthiness(unit_rows(rows), flat, NEIGHBORS))
        for share, rows, flat in zip(SHARES, features, positions, strict=True)
    ]  # fmt: skip
    notes = {
        "images": len(images), "split": SPLIT, "seed": SEED, "models": len(SHARES), "neighbors": NEIGHBORS,
        "perplexity": fit_perplexity(len(images)) * len(SHARES),
    }  # fmt: skip
    tables = {
        "images": images,
        "answers": answers,
        "quality": pd.DataFrame(quality, columns=["share", "correct", "n", "trustworthiness"]),
    }
    return MeasurementResult(tables, notes, {"positions": positions})
