"""The first rows of a table: the pretrained model on all tasks, and each expert on its own task, in one pass."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from merging.base.devices import choose_device, describe_device
from merging.engine.evaluation.evaluate import EvaluatedModel
from merging.images.benchmarks.benchmark import SPLITS, Benchmark
from merging.sharing.published.choice import find_models, list_needed_parts
from merging.sharing.published.comparison_table import MeasuredRow
from merging.sharing.published.experiment_run import ExperimentRun
from merging.sharing.published.measured_rows import (
    MEASURED_FILE,
    MeasuredFiles,
    MeasuredTable,
    read_measured,
    write_measured,
)
from merging.sharing.published.rates import encoding_rate_name, store_rate
from merging.sharing.published.row_scores import score_together
from merging.sharing.published.row_variants import INDIVIDUAL, PRETRAINED
from merging.study.runs.reference_models import reference_id, store_reference
from merging.tasks.context import QUIET, Context


def measure_references(run: ExperimentRun, benchmark: Benchmark, context: Context = QUIET) -> MeasuredTable:
    """The measured rows, including those of the references; missing references are computed.

    The pretrained model's scores are also stored as a reference run. An expert is scored on its own task only, so its
    score is stored only in the table.
    """
    measured = find_measured(run, benchmark)
    missing = {PRETRAINED, INDIVIDUAL} - set(measured.rows)
    if not missing:
        write_measured(run.folders.folder, measured)  # with the choice of this run
        return measured
    store, started, ids = run.open_store(benchmark), time.monotonic(), measured.references
    tasks = {PRETRAINED: [task.key for task in benchmark.tasks]} if PRETRAINED in missing else {}
    tasks |= {task: [task] for task in benchmark.experts} if INDIVIDUAL in missing else {}
    references = {PRETRAINED: benchmark.pretrained, **benchmark.experts}
    models = [
        EvaluatedModel(name, references[name], task_keys, stored_features=store.features_folder(ids[name]))
        for name, task_keys in tasks.items()
    ]
    warnings: list[str] = []
    scored = score_together(models, benchmark, context=replace(context.on_device(run.device), warn=warnings.append))
    seconds = time.monotonic() - started
    store_encoding_rate(run, benchmark, models, seconds)
    for sentence in warnings:
        context.warn(sentence)
    if pretrained_scores := scored.get(PRETRAINED):
        store_reference(
            store, benchmark, PRETRAINED, pretrained_scores.evaluation, seconds / len(models), run.device, warnings
        )
        measured = measured.with_row(
            MeasuredRow(PRETRAINED, pretrained_scores.scores, pretrained_scores.right_answers, run=ids[PRETRAINED])
        )
    if INDIVIDUAL in missing:
        expert_scores = {task: scored[task].scores[task] for task in benchmark.experts}
        right = {task: scored[task].right_answers[task] for task in benchmark.experts}
        measured = measured.with_row(MeasuredRow(INDIVIDUAL, expert_scores, right))
    write_measured(run.folders.folder, measured)
    return measured


def find_measured(run: ExperimentRun, benchmark: Benchmark) -> MeasuredTable:
    """The measured rows on these images, as rows of this choice; empty if the images differ.

    If the choice or the models differ, only references of the same models are reused; other rows are read again from
    their runs.
    """
    ids = {name: reference_id(benchmark, name) for name in (PRETRAINED, *benchmark.experts)}
    files = MeasuredFiles.from_lock(
        run.folders.read_lock(), {use.repository for use in list_needed_parts(run.experiment, run.choice)}
    )
    if (run.folders.folder / MEASURED_FILE).is_file():
        measured = read_measured(run.folders.folder, run.experiment, run.choice)
        if measured.benchmark == benchmark.digest:
            # Choices that differ only in their rows give the same scores.
            if measured.references == ids and replace(measured.choice, rows=()) == replace(run.choice, rows=()):
                return replace(measured, choice=run.choice, files=files)
            rows = {key: row for key, row in measured.rows.items() if _is_same_reference(key, measured.references, ids)}
            if rows:
                return replace(measured, choice=run.choice, rows=rows, problems={}, references=ids, files=files)
    device = describe_device(choose_device(run.device))
    return MeasuredTable(device, benchmark.digest, run.choice, ids, files)


def _is_same_reference(key: str, earlier_ids: Mapping[str, str], ids: Mapping[str, str]) -> bool:
    """Whether a row of a table is a reference that was measured on the models with these ids."""
    names = {PRETRAINED: {PRETRAINED}, INDIVIDUAL: set(ids) - {PRETRAINED}}.get(key)
    return names is not None and all(earlier_ids.get(name) == ids[name] for name in names)


def store_encoding_rate(run: ExperimentRun, benchmark: Benchmark, models: list[EvaluatedModel], seconds: float) -> None:
    """Store the encoding rate of this tower on this device, for the next plan."""
    passes = sum(benchmark.count_images(key, split) for part in models for key in part.tasks for split in SPLITS)
    name = encoding_rate_name(find_models(run.experiment, run.choice).tower, choose_device(run.device).type)
    store_rate(run.folders.rates_folder, name, passes, seconds)
