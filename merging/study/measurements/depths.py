"""A run's answers by depth on the reporting half: where they settle, how tokens drift, and which tokens fix errors.

Every data set is compared with its reference: the expert in domain, the pretrained model out of domain. An image is
broken if the reference is right and the run is wrong. A donor is a model whose tokens replace the run's. A merge with
one model per task is measured in domain only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from merging.base.devices import choose_device
from merging.base.errors import TaskError
from merging.images.benchmarks.paired_scores import AVERAGE, IN_DOMAIN, OUT_OF_DOMAIN, find_share_interval
from merging.images.benchmarks.resampled_tasks import DRAWS
from merging.images.image_encoder import Encoder
from merging.models.model_references import PRETRAINED
from merging.study.analysis.measurement_subject import MeasurementResult, Subject
from merging.study.one_image.images_by_depth import ImagesByDepth, compute_images_by_depth, find_restored_images
from merging.study.one_image.logit_lens import parting_depth, settling_depth
from merging.study.one_image.named_towers import expert_key
from merging.study.one_image.restore import TOKEN_KINDS
from merging.tasks.context import Context

if TYPE_CHECKING:
    from merging.images.benchmarks.benchmark import Benchmark
    from merging.models.checkpoint import Checkpoint
    from merging.study.analysis.measurement_store import StoredMeasurement

SPLIT = "reporting"
READING_PHASE = "answers by depth"  # a phase
RUN, REFERENCE = "run", "reference"
RESTORED_TABLE = "mended"  # the table, and the array, of broken images that a donor's tokens fix
NOT_BROKEN = -1  # in the array ``RESTORED_TABLE``


@dataclass(frozen=True, eq=False)
class TaskByDepth:
    """The results on one data set; ``restored_right`` {donor: (D, 3, broken)}: whether the tokens fix an image."""

    reference: str
    images: ImagesByDepth
    restored_right: Mapping[str, NDArray[np.bool_]]

    @property
    def broken_images(self) -> NDArray[np.bool_]:
        """Whether the reference is right and the run is wrong, for every image (n,)."""
        return find_broken_images(self.images)


def find_broken_images(images: ImagesByDepth) -> NDArray[np.bool_]:
    """Whether the reference is right and the model is wrong, for every image (n,)."""
    wrong: NDArray[np.bool_] = images.answers[-1] != images.labels
    is_broken: NDArray[np.bool_] = wrong & (images.reference[-1] == images.labels)
    return is_broken


def measure_depths(subject: Subject, context: Context) -> MeasurementResult:
    """The tables "accuracy", "turns", "parts", "drift", ``RESTORED_TABLE`` and "images", with arrays to find images by.

    All tables have over (a task, or "in domain" and "out of domain": all images of those together), group ("average",
    or the task's domain), depth (0: before block 0) and n. "accuracy" has model ("run", "reference") and accuracy.
    "turns" has the share of images whose final answer stays from this depth on, "parts" the share of images whose
    answer differs from the reference's from this depth to the end. All three have the interval low to high. "drift" has
    reference, token, mean and high (the 90 % quantile) of every task. ``RESTORED_TABLE`` has donor, tokens ("class",
    "patches", "all") and the share of the n broken images that are right when the donor's tokens replace the run's
    before the block of this number. "images" has the first index and n of each task in the arrays, which
    ``read_depths`` reads.

    Raises:
        CheckpointError, TaskError: a checkpoint of the run cannot be read, or does not fit the benchmark's images.
    """
    subject.refuse_modules()
    stages = subject.split_context(context, {READING_PHASE: 3.0})
    with subject.open_models(stages) as models:
        results = dict(_measure_tasks(subject, models, stages[READING_PHASE]))
    if not results:
        raise TaskError("This run has one model per task, and none is of a data set of this benchmark.")
    in_domain = [task for task in results if task in subject.checkpoints.experts]
    arrays, image_ranges = _build_arrays(results)
    tables = {
        "accuracy": _build_accuracy_rows(results, in_domain),
        "turns": _build_first_depth_rows(results, in_domain, lambda result: settling_depth(result.answers)),
        "parts": _build_first_depth_rows(
            results, in_domain, lambda result: parting_depth(result.answers, result.reference)
        ),
        "drift": pd.concat(
            [result.images.drift().assign(over=task, reference=result.reference) for task, result in results.items()],
            ignore_index=True,
        ),
        RESTORED_TABLE: _build_restoration_rows(results, in_domain),
        "images": image_ranges,
    }
    notes = {"split": SPLIT, "images": len(arrays[RESTORED_TABLE]), "resamples": DRAWS, "resample_seed": 0}
    return MeasurementResult(tables, notes, arrays)


def _count_work(subject: Subject) -> int:
    """Passes of images: one through the run and one through the reference."""
    per_task = subject.store.get_run(subject.run_id).per_task
    keys = [task.key for task in subject.benchmark.tasks if not per_task or task.key in subject.checkpoints.experts]
    return 2 * sum(subject.benchmark.count_images(key, SPLIT) for key in keys)


def _measure_tasks(
    subject: Subject, models: Mapping[str, Checkpoint], context: Context
) -> Iterator[tuple[str, TaskByDepth]]:
    """The results on every data set that has a model, in the benchmark's order; at most three towers are in memory."""
    benchmark, opened, device = subject.benchmark, subject.checkpoints, choose_device(context.device)
    meter = context.meter(_count_work(subject))
    pretrained, merged = Encoder.from_checkpoint(opened.pretrained, device), None
    for task in benchmark.tasks:
        model = models.get("merged") or models.get(task.key)
        images, labels = benchmark.load_images(task.key, SPLIT)
        if model is None or not len(labels):
            continue
        if reason := benchmark.describe_misfit(model):
            raise TaskError(f"The run cannot be measured on this benchmark: {reason}")
        if merged is None or len(models) > 1:
            merged = Encoder.from_checkpoint(model, device, fallback=opened.pretrained)
        donors = {PRETRAINED: pretrained}
        if task.key in opened.experts:
            donors[expert_key(task.key)] = Encoder.from_checkpoint(
                opened.experts[task.key], device, fallback=opened.pretrained
            )
        reference = list(donors)[-1]  # the expert if there is one
        options = (benchmark.load_head(task.key), benchmark.preprocess, meter, task.title)
        answers = compute_images_by_depth(merged, donors[reference], images, labels, *options)
        is_broken = find_broken_images(answers)
        restored = {
            name: find_restored_images(merged, donor, images[is_broken], labels[is_broken], *options)
            for name, donor in donors.items()
        }
        yield task.key, TaskByDepth(reference, answers, restored)


# Tables


def _list_groups(results: Mapping[str, Any], in_domain: list[str]) -> Iterator[tuple[str, str, list[str]]]:
    """(over, group, its tasks): both domains, then every task."""
    for name, tasks in (
        (IN_DOMAIN, [task for task in results if task in in_domain]),
        (OUT_OF_DOMAIN, [task for task in results if task not in in_domain]),
    ):
        if tasks:
            yield name, AVERAGE, tasks
            yield from ((task, name, [task]) for task in tasks)


def _build_share_rows(
    results: Mapping[str, Any], in_domain: list[str], holds: Callable[[str], NDArray[np.bool_]], column: str
) -> pd.DataFrame:
    """Rows over, group, depth, share, low, high, n: the share of images for which ``holds`` (D, n) is true."""
    by_task = {task: holds(task) for task in results}
    rows = [
        (scope, group, depth, *find_share_interval({task: by_task[task][depth] for task in tasks}))
        for scope, group, tasks in _list_groups(results, in_domain)
        for depth in range(len(by_task[tasks[0]]))
    ]
    return pd.DataFrame(rows, columns=["over", "group", "depth", column, "low", "high", "n"])


def _build_accuracy_rows(results: Mapping[str, TaskByDepth], in_domain: list[str]) -> pd.DataFrame:
    def build_rows(answers: Callable[[ImagesByDepth], NDArray[np.int64]]) -> pd.DataFrame:
        def is_right(task: str) -> NDArray[np.bool_]:
            correct: NDArray[np.bool_] = answers(results[task].images) == results[task].images.labels
            return correct

        return _build_share_rows(results, in_domain, is_right, "accuracy")

    run, reference = build_rows(lambda images: images.answers), build_rows(lambda images: images.reference)
    return pd.concat([run.assign(model=RUN), reference.assign(model=REFERENCE)], ignore_index=True)


def _build_first_depth_rows(
    results: Mapping[str, TaskByDepth],
    in_domain: list[str],
    find_first_depth: Callable[[ImagesByDepth], NDArray[np.int64]],
) -> pd.DataFrame:
    """The share of images for which each depth is the ``find_first_depth`` one (n,)."""

    def is_first(task: str) -> NDArray[np.bool_]:
        images = results[task].images
        equal: NDArray[np.bool_] = find_first_depth(images) == np.arange(len(images.answers))[:, None]
        return equal

    return _build_share_rows(results, in_domain, is_first, "share")


def _build_restoration_rows(results: Mapping[str, TaskByDepth], in_domain: list[str]) -> pd.DataFrame:
    """The table ``RESTORED_TABLE``; its donors are "reference" (each data set's own) and "pretrained"."""
    frames = []
    for donor in (REFERENCE, PRETRAINED):
        for number, kind in enumerate(TOKEN_KINDS):

            def is_restored(task: str, donor: str = donor, number: int = number) -> NDArray[np.bool_]:
                result = results[task]
                return result.restored_right[result.reference if donor == REFERENCE else donor][:, number]

            frames.append(_build_share_rows(results, in_domain, is_restored, "share").assign(donor=donor, tokens=kind))
    return pd.concat(frames, ignore_index=True)


# Image by image


def _build_arrays(results: Mapping[str, TaskByDepth]) -> tuple[dict[str, NDArray[Any]], pd.DataFrame]:
    """Arrays over all N images, one data set after another, and the table of where each data set begins."""
    counts = [len(result.images.labels) for result in results.values()]
    first_indices = np.cumsum([0, *counts[:-1]])
    image_ranges = pd.DataFrame({"task": list(results), "first": first_indices, "n": counts})

    def join(name: str) -> NDArray[Any]:
        return np.concatenate([getattr(result.images, name).T for result in results.values()])  # (N, D)

    arrays = {
        "answers": _narrow_dtype(join("answers")),
        "reference": _narrow_dtype(join("reference")),
        "drift": join("class_drift").astype(np.float16),
        RESTORED_TABLE: np.concatenate([_arrange_by_image(result) for result in results.values()]),
    }
    return arrays, image_ranges


def _narrow_dtype(classes: NDArray[Any]) -> NDArray[Any]:
    """Class numbers in the smallest dtype that holds the largest."""
    return classes.astype(np.min_scalar_type(classes.max(initial=0)))


def _arrange_by_image(result: TaskByDepth) -> NDArray[np.int8]:
    """1 if the reference's tokens of a kind, before a block, fix an image (n, D, 3), else 0; -1 if it is not broken."""
    is_broken = result.broken_images
    depths = len(result.images.answers)
    rows = np.full((len(is_broken), depths, len(TOKEN_KINDS)), NOT_BROKEN, np.int8)
    rows[is_broken] = result.restored_right[result.reference].transpose(2, 0, 1)
    return rows


@dataclass(frozen=True, eq=False)
class StoredDepths:
    """The stored results on one data set's n images at D depths.

    ``answers``, ``reference`` and ``drift`` (of the class token) are (n, D). ``restored_right`` (n, D, 3) is by kind of
    tokens: 1 if they fix a broken image, 0 if not, -1 if the image is not broken.
    """

    labels: NDArray[np.int64]
    answers: NDArray[np.int64]
    reference: NDArray[np.int64]
    drift: NDArray[np.float64]
    restored_right: NDArray[np.int8]


def read_depths(
    stored: StoredMeasurement, benchmark: Benchmark, only: Collection[str] | None = None
) -> dict[str, StoredDepths]:
    """{data set: results on its images}, in the order of the benchmark; with ``only``, those data sets alone.

    Raises:
        StoreError: the measurement is damaged.
    """
    names = {"answers": np.int64, "reference": np.int64, "drift": np.float64, RESTORED_TABLE: np.int8}
    arrays = {name: stored.array(name).astype(dtype) for name, dtype in names.items()}
    table = stored.table("images")
    return {
        str(task): StoredDepths(
            benchmark.load_labels(str(task), SPLIT),
            *(array[int(start) : int(start) + int(n)] for array in arrays.values()),
        )
        for task, start, n in zip(table["task"], table["first"], table["n"], strict=True)
        if only is None or task in only
    }
