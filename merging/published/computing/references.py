"""The first rows of a table: the pretrained model on everything, and each expert on its own task, in one pass."""

from __future__ import annotations

import time
from dataclasses import replace

from merging.benchmarks.benchmark import SPLITS, Benchmark
from merging.benchmarks.evaluate import EvaluatedModel
from merging.devices import choose_device, describe_device
from merging.progress import Cancel, ProgressCallback
from merging.published.choice import models
from merging.published.computing.experiment_run import ExperimentRun
from merging.published.computing.measured import FILE, MeasuredTable, read_measured, write_measured
from merging.published.computing.scores import score_together
from merging.published.rows import INDIVIDUAL, PRETRAINED
from merging.published.speed.rates import encoded, keep_rate
from merging.published.table import MeasuredRow
from merging.runs.reference_models import keep_reference, reference_id


def measure_references(
    run: ExperimentRun, benchmark: Benchmark, progress: ProgressCallback | None = None, cancel: Cancel | None = None
) -> MeasuredTable:
    """What was measured, with the rows of the references, which are computed unless they are there.

    The pretrained model's scores are stored like those of any reference model. An expert is scored on its own task
    only, so its scores are kept in the table alone.
    """
    known = known_measured(run, benchmark)
    if {PRETRAINED, INDIVIDUAL} <= set(known.rows):
        write_measured(run.place.folder, known)  # with the choice of this run
        return known
    store, started = run.store(benchmark), time.monotonic()
    ids = {name: reference_id(benchmark, name) for name in (PRETRAINED, *benchmark.experts)}
    work = [EvaluatedModel(PRETRAINED, benchmark.pretrained, [task.key for task in benchmark.tasks],
                           kept=store.features_of(ids[PRETRAINED]))]  # fmt: skip
    work += [
        EvaluatedModel(task, expert, [task], kept=store.features_of(ids[task]))
        for task, expert in benchmark.experts.items()
    ]
    warnings: list[str] = []
    scored = score_together(
        work, benchmark, device=run.device, progress=progress, cancel=cancel, warn=warnings.append
    )  # fmt: skip
    seconds = time.monotonic() - started
    keep_speed(run, benchmark, work, seconds)
    keep_reference(
        store, benchmark, PRETRAINED, scored[PRETRAINED].table, seconds / len(work), run.device, warnings
    )  # fmt: skip
    for sentence in warnings:
        run.warn(sentence)
    plain = scored[PRETRAINED]
    own = {task: scored[task].scores[task] for task in benchmark.experts}
    right = {task: scored[task].right[task] for task in benchmark.experts}
    known = known.with_row(MeasuredRow(PRETRAINED, plain.scores, plain.right, run=ids[PRETRAINED]))
    known = known.with_row(MeasuredRow(INDIVIDUAL, own, right))
    write_measured(run.place.folder, known)
    return known


def known_measured(run: ExperimentRun, benchmark: Benchmark) -> MeasuredTable:
    """What was measured of these images before, as rows of this choice; nothing if that was on others.

    Of another choice the references alone are taken: the other rows are taken from their runs again.
    """
    device = describe_device(choose_device(run.device))
    if (run.place.folder / FILE).is_file():
        known = read_measured(run.place.folder, run.chosen, run.choice)
        if known.choice is not None and known.benchmark == benchmark.digest:
            if replace(known.choice, rows=()) == replace(run.choice, rows=()):
                return replace(known, choice=run.choice)
            rows = {key: known.rows[key] for key in (PRETRAINED, INDIVIDUAL) if key in known.rows}
            return replace(known, choice=run.choice, rows=rows, problems={})
    return MeasuredTable(device, benchmark.digest, choice=run.choice)


def keep_speed(run: ExperimentRun, benchmark: Benchmark, work: list[EvaluatedModel], seconds: float) -> None:
    """Keep how many images a second went through models of this tower on this device, for the next plan."""
    passes = sum(benchmark.count(key, split) for part in work for key in part.tasks for split in SPLITS)
    name = encoded(models(run.chosen, run.choice).tower, choose_device(run.device).type)
    keep_rate(run.place.rates, name, passes, seconds)
