"""Accuracy on corrupted images: how much a model loses to noise, blur, less contrast, JPEG and pixelation.

Every model gets the same images: a seeded sample of every data set's reporting or choosing half, intact and corrupted.
The mean relative loss is 1 − A/A₀, where A₀ is the accuracy on the intact images and A the mean accuracy over kinds of
corruption and severities; both are unweighted means over data sets. FusionBench tests merged CLIP models on such images
(Tang et al. 2024, arXiv:2406.03280).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from merging.base.devices import choose_device
from merging.base.errors import TaskError
from merging.engine.evaluation.evaluate import EvaluatedModel
from merging.engine.evaluation.image_features import ImageModel, ModulesOfTask, compute_features, predict
from merging.images.benchmarks.benchmark import SPLITS, sample_indices
from merging.images.benchmarks.paired_scores import IN_DOMAIN, OUT_OF_DOMAIN, find_interval, group_tasks
from merging.images.benchmarks.resampled_tasks import DRAWS, SEED, resample_task
from merging.images.corruptions import CORRUPTIONS, SEVERITIES, SMALL_SIDE, corrupt_images
from merging.images.image_encoder import Encoder
from merging.study.analysis.measurement_subject import MeasurementResult, Subject
from merging.study.measurements.features import image_name
from merging.study.measurements.put_back_images import list_evaluated_models
from merging.tasks.context import Context

if TYPE_CHECKING:
    from merging.base.progress import Meter
    from merging.images.benchmarks.benchmark import Benchmark

MAX_IMAGES = 120  # of every data set
INTACT, ALL = "none", "all"  # the names of no corruption, and of the mean over all kinds or severities
CELLS = ((INTACT, 0), *((kind, severity) for kind in CORRUPTIONS for severity in SEVERITIES))
REFERENCES_KEY = "robustness_references"  # the key of ``measure_references``
RUN, PRETRAINED, INDIVIDUAL = "run", "pretrained", "individual"  # models
REFERENCES_STAGE, CORRUPTED_STAGE = "reference models", "corrupted images"  # stages
BY_DOMAIN, BY_TASK = "domains", "tasks"  # tables
DIGITS = 4  # after the decimal point of stored shares
Right = NDArray[np.float64]  # (cells, n): whether each image is right, or the share of models that are


def measure_robustness(subject: Subject, context: Context) -> MeasurementResult:
    """Robustness of a run on the reporting half; see ``_measure_run``."""
    return _measure_run(subject, context, SPLITS[1])


def measure_robustness_choosing(subject: Subject, context: Context) -> MeasurementResult:
    """Robustness of a run on the choosing half; see ``_measure_run``."""
    return _measure_run(subject, context, SPLITS[0])


def measure_references(subject: Subject, context: Context) -> MeasurementResult:
    """Robustness of a run's pretrained model and experts on the reporting half; see ``_measure_references``."""
    return _measure_references(subject, context, SPLITS[1])


def measure_references_choosing(subject: Subject, context: Context) -> MeasurementResult:
    """Robustness of a run's pretrained model and experts on the choosing half; see ``_measure_references``."""
    return _measure_references(subject, context, SPLITS[0])


def _measure_run(subject: Subject, context: Context, split: str) -> MeasurementResult:
    """The tables of ``build_tables`` of a run; the reference models of a merge are measured before, if they are not.

    Raises:
        CheckpointError, TaskError: the run cannot be read, does not fit the benchmark's images, or there are none.
    """
    run = subject.store.get_run(subject.run_id)
    stages = subject.split_context(context, {REFERENCES_STAGE: 3.0, CORRUPTED_STAGE: 2.0})
    if run.kind == "merge":
        assert subject.measure_other is not None  # `measure` passes it
        key = REFERENCES_KEY if split == SPLITS[1] else f"{REFERENCES_KEY}_choosing"
        subject.measure_other(key, subject.run_id, stages[REFERENCES_STAGE])
    with subject.open_models(stages) as models:
        evaluated = list_evaluated_models(models, subject)
        right = answer_models(evaluated, subject.benchmark, split, stages[CORRUPTED_STAGE])
    return MeasurementResult(
        build_tables({RUN: right}, run.experts), _make_notes(right, split, subject.benchmark.image_size)
    )


def _measure_references(subject: Subject, context: Context, split: str) -> MeasurementResult:
    """The tables of ``build_tables`` of the pretrained model, on all data sets, and of each expert on its own.

    Raises:
        CheckpointError, TaskError: the run's models cannot be read, or do not fit the benchmark's images.
    """
    opened, benchmark = subject.checkpoints_on_benchmark, subject.benchmark
    parts = context.split({PRETRAINED: 1.0 * len(benchmark.tasks), INDIVIDUAL: 1.0 * len(opened.experts)})
    pretrained = EvaluatedModel("", opened.pretrained, [task.key for task in benchmark.tasks])
    experts = [EvaluatedModel(task, expert, [task]) for task, expert in opened.experts.items()]
    right = {
        PRETRAINED: answer_models([pretrained], benchmark, split, parts[PRETRAINED]),
        INDIVIDUAL: answer_models(experts, benchmark, split, parts[INDIVIDUAL]),
    }
    return MeasurementResult(
        build_tables(right, list(opened.experts)), _make_notes(right[PRETRAINED], split, benchmark.image_size)
    )


def answer_models(
    models: Sequence[EvaluatedModel], benchmark: Benchmark, split: str, context: Context
) -> dict[str, Right]:
    """{task: (cells, n)}: whether models answer a sample of images right, intact and corrupted, as ``CELLS`` say.

    Several models of one task are averaged. Tasks without images are left out.

    Raises:
        TaskError: no task has images. Cancelled: the user cancelled.
    """
    sampled = {
        task.key: sample_indices(count, MAX_IMAGES, SEED)
        for task in benchmark.tasks
        if split in task.splits and (count := benchmark.count_images(task.key, split))
    }
    tasks_by_model = [[task for task in model.tasks if task in sampled] for model in models]
    if not any(tasks_by_model):
        raise TaskError(f"The benchmark has no images in the {split} half, so there are none to corrupt.")
    meter = context.meter(len(CELLS) * sum(len(sampled[task]) for tasks in tasks_by_model for task in tasks))
    right: dict[str, list[Right]] = {}
    for model, tasks in zip(models, tasks_by_model, strict=True):
        device = choose_device(context.device)
        modules = None if model.modules is None else model.modules.on(device)
        tower = Encoder.from_checkpoint(model.open(), device, fallback=benchmark.pretrained_tower)
        for task in tasks:
            encoder = tower if modules is None else ModulesOfTask(modules, task)
            answers = _answer_task(encoder, benchmark, split, task, sampled[task], meter)
            right.setdefault(task, []).append(answers)
    return {task: np.mean(right[task], axis=0) for task in sampled if task in right}


def _answer_task(
    encoder: ImageModel, benchmark: Benchmark, split: str, task: str, positions: NDArray[np.int64], meter: Meter
) -> Right:
    """Whether a model answers the images at these positions (n,) of a split right (cells, n)."""
    images, labels = benchmark.load_images(task, split)
    pixels, truth, head = images[positions], labels[positions], benchmark.load_head(task)
    names, title = [image_name(task, int(position)) for position in positions], benchmark.find_task(task).title
    rows = []
    for kind, severity in CELLS:
        corrupted = pixels if kind == INTACT else corrupt_images(pixels, kind, severity, names, SEED)
        detail = f"{title}, {kind} {severity}" if severity else title
        features = compute_features(
            encoder, corrupted, meter, "Evaluating corrupted images", detail, benchmark.preprocess
        )
        rows.append(predict(features, head) == truth)
    return np.stack(rows).astype(np.float64)


def _make_notes(right: Mapping[str, Right], split: str, side: int) -> dict[str, Any]:
    sizes = [answers.shape[1] for answers in right.values()]
    counts = {"images": max(sizes), "fewest_images": min(sizes), "data_sets": len(sizes)}
    return {"split": split, "seed": SEED, "resamples": DRAWS, "small": side <= SMALL_SIDE, **counts}


def build_tables(right: Mapping[str, Mapping[str, Right]], in_domain: Collection[str]) -> dict[str, pd.DataFrame]:
    """The tables of {model: {task: whether images are right (cells, n)}}; shares with 95 % intervals low to high.

    ``BY_TASK``: model, task, corruption, severity, correct (images), n. ``BY_DOMAIN``: model, over ("in domain", "out
    of domain"), corruption (one, or "all"), severity ("0": intact, to "5", or "all": the mean over 1 to 5), accuracy
    (the mean over tasks), loss (relative, see above), tasks and n. Intervals are over images: those of each task are
    sampled again, the same for all cells, so that losses are paired by image.
    """
    tasks, domains = [], []
    for model, of_model in right.items():
        for task, answers in of_model.items():
            counts = zip(CELLS, answers.sum(axis=1).tolist(), strict=True)
            tasks += [(model, task, *cell, count, answers.shape[1]) for cell, count in counts]
        for over in (IN_DOMAIN, OUT_OF_DOMAIN):
            if keys := group_tasks(of_model, in_domain)[over]:
                values = np.mean([of_model[key].mean(axis=1, keepdims=True) for key in keys], axis=0)
                draws = np.mean([resample_task(key, of_model[key]) for key in keys], axis=0)
                size = len(keys), sum(of_model[key].shape[1] for key in keys)
                for kind in (ALL, *CORRUPTIONS):
                    rows = _list_severities(_select_kind(values, kind), _select_kind(draws, kind))
                    domains += [(model, over, kind, *row, *size) for row in rows]
    numbers = ["accuracy", "low", "high", "loss", "loss_low", "loss_high", "tasks", "n"]
    return {
        BY_TASK: pd.DataFrame(tasks, columns=["model", "task", "corruption", "severity", "correct", "n"]),
        BY_DOMAIN: pd.DataFrame(domains, columns=["model", "over", "corruption", "severity", *numbers]),
    }


def _select_kind(cells: NDArray[np.float64], kind: str) -> NDArray[np.float64]:
    """The accuracies (2 + severities, m) with a kind of corruption, or means over all kinds, from all (cells, m).

    The first row is of intact images, the last one the mean over severities.
    """
    of_kinds = cells[1:].reshape(len(CORRUPTIONS), len(SEVERITIES), -1)
    rows = of_kinds.mean(axis=0) if kind == ALL else of_kinds[CORRUPTIONS.index(kind)]
    return np.concatenate([cells[:1], rows, rows.mean(axis=0, keepdims=True)])


def _list_severities(values: NDArray[np.float64], draws: NDArray[np.float64]) -> Iterator[tuple[str | float, ...]]:
    """Severity, accuracy and relative loss, both with intervals, from the rows of ``_select_kind`` (·, 1) and draws.

    Losses relative to an accuracy of zero are NaN, and so is an interval with one among its draws.
    """
    losses, lost_draws = (1 - rows / np.where(rows[:1] > 0, rows[:1], np.nan) for rows in (values, draws))
    columns = (values[:, 0], *find_interval(draws), losses[:, 0], *find_interval(lost_draws))
    names = (*map(str, (0, *SEVERITIES)), ALL)
    for name, row in zip(names, np.round(np.stack(columns, axis=1), DIGITS).tolist(), strict=True):
        yield name, *row
