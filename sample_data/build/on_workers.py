"""What workers compute of the library before it is put together: runs and measurements, in the store of the builder."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from merging.base.errors import MergingError
from merging.base.progress import Progress, ProgressCallback
from merging.images.benchmarks.benchmark import Benchmark
from merging.recipes.recipe import Recipe
from merging.study.analysis.measurement_registry import find_measurement
from merging.study.measure_several import RequestedMeasurement, measure_several
from merging.study.runs.execute_several import RequestedRun, execute_several
from merging.study.runs.run import Run
from merging.study.runs.run_store import Store
from merging.tasks.context import Context
from merging.tasks.workers.workers import Workers


def compute_runs(recipes: Sequence[Recipe], store: Store, benchmark: Benchmark, workers: Workers) -> None:
    """Compute the runs that are missing; all that can be computed before a failure ends the program."""
    wanted = [RequestedRun(recipe) for recipe in recipes]
    context = Context(progress=_make_phase_printer(), warn=print_warning, workers=workers)
    _exit_on_failures(execute_several(wanted, store, benchmark=benchmark, context=context, keep_model=False))


def compute_measurements(
    measured: Sequence[tuple[str, Run | None]], store: Store, benchmark: Benchmark, workers: Workers
) -> None:
    """Measure what is missing, but what is timed: kinds, and the runs that they are of, None for the benchmark."""
    wanted = [
        RequestedMeasurement(key, of.id if of else "") for key, of in measured if not find_measurement(key).is_timed
    ]
    context = Context(progress=_make_phase_printer(), warn=print_warning, workers=workers)
    _exit_on_failures(measure_several(wanted, store, benchmark, context=context))


def print_warning(sentence: str) -> None:
    """Print a warning."""
    print(sentence, flush=True)


def _make_phase_printer() -> ProgressCallback:
    """What prints each phase once."""
    said = set[str]()

    def report(progress: Progress) -> None:
        if progress.phase not in said:
            print_warning(progress.phase)
            said.add(progress.phase)

    return report


def _exit_on_failures(found: Sequence[object]) -> None:
    if failures := [str(each) for each in found if isinstance(each, MergingError)]:
        sys.exit("\n".join(failures))
