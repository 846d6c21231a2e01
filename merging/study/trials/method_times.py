"""The time of every method as a multiple of a reference merge's, with alternating timings in one process.

Seconds of single runs depend more on the machine's load than on the method. Therefore every timing of a method is
between two timings of the reference, all on the same models in the same process, and only their ratio is stored. On a
CPU the clock is the CPU time of this process on one thread, which other processes hardly affect.
"""

from __future__ import annotations

import datetime
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import torch

from merging.base.devices import choose_device, describe_machine
from merging.base.errors import Cancelled, MergingError
from merging.engine import run as engine
from merging.methods import registry
from merging.methods.method import Adapt, Method
from merging.recipes.recipe import DEFAULT_MERGE, Exemplars, Recipe
from merging.study.analysis.measurement_subject import MeasurementResult, Subject
from merging.study.runs.opened_recipe import OpenedRecipe, open_inputs
from merging.study.runs.run_facts import list_versions
from merging.tasks.context import Context

TIMED_ROUNDS = 5  # timings of a method; an extra round before the first loads modules and data
MIN_SECONDS = 0.3  # of a timing: shorter merges are repeated, and their mean counts
MAX_SECONDS = 60.0  # after which a method is not timed again
CPU_CLOCK, WALL_CLOCK = "CPU time of one thread", "time on the device"


@dataclass
class TimedMethod:
    """A method at its defaults in the shortest chain that can have it, and its ratios; the first is a warm-up's."""

    method: Method
    opened: OpenedRecipe
    ratios: list[float] = field(default_factory=list)
    total_seconds: float = 0.0
    problem: str = ""

    @property
    def row(self) -> dict[str, Any]:
        """The method's row of the table."""
        counted_ratios = self.ratios[1:] or self.ratios
        unknown = {"ratio": float("nan"), "low": float("nan"), "high": float("nan")}
        return {
            "role": self.method.role,
            "key": self.method.key,
            "chain": self.opened.recipe.text(),
            **(_ratio_range(counted_ratios) if counted_ratios else unknown),
            "rounds": len(counted_ratios),
            "problem": self.problem,
        }


def _ratio_range(ratios: list[float]) -> dict[str, float]:
    return {"ratio": statistics.median(ratios), "low": min(ratios), "high": max(ratios)}


class Stopwatch:
    """Runs chains on a benchmark's models and times them; all methods that need exemplars get the same ones."""

    def __init__(self, subject: Subject, context: Context) -> None:
        self._benchmark, self._context = subject.benchmark, context.without_progress()
        on_cpu = choose_device(context.device).type == "cpu"
        self.clock: Callable[[], float] = time.process_time if on_cpu else time.perf_counter
        self.clock_name = CPU_CLOCK if on_cpu else WALL_CLOCK
        self._exemplars: Mapping[str, Any] = {}

    def __call__(self, opened: OpenedRecipe) -> float:
        """Mean seconds of one merge, from opened checkpoints to a state dict in memory."""
        sampling = opened.recipe.exemplars
        if sampling and not self._exemplars:
            self._exemplars = self._benchmark.labeled_exemplars(sampling.per_task, sampling.seed)
        started, spent, merges = self.clock(), 0.0, 0
        while spent < MIN_SECONDS:
            engine.run_recipe(
                opened.recipe, opened.pretrained, opened.experts, exemplars=self._exemplars if sampling else None,
                context=self._context,
            )  # fmt: skip
            spent, merges = self.clock() - started, merges + 1
        return spent / merges


def measure_times(subject: Subject, context: Context) -> MeasurementResult:
    """The table "times": a row for each method with the median, minimum and maximum of its ratios.

    problem is the reason if a method cannot be run on these models; then it has no ratio.

    Raises:
        CheckpointError: a checkpoint cannot be read. Cancelled.
    """
    trials = [
        TimedMethod(method, _open_default_chain(subject, method))
        for method in registry.list_methods()
        if not isinstance(method, Adapt)
    ]
    reference = _open_default_chain(subject, registry.find_merge(DEFAULT_MERGE))
    meter = context.meter((TIMED_ROUNDS + 1) * len(trials))
    watch, threads = Stopwatch(subject, context), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        watch(reference)  # loads modules and data that every merge needs
        for _ in range(TIMED_ROUNDS + 1):
            reference_seconds = watch(reference)
            for trial in trials:
                reference_seconds = _time_pair(trial, watch, reference, reference_seconds)
                meter.advance(1, "Timing", trial.method.title)
    finally:
        torch.set_num_threads(threads)
    notes = {
        "reference": DEFAULT_MERGE, "rounds": TIMED_ROUNDS, "clock": watch.clock_name, "machine": describe_machine(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(), "versions": list_versions(),
        "experts": len(reference.experts), "exemplars": Exemplars().per_task,
    }  # fmt: skip
    return MeasurementResult({"times": pd.DataFrame([trial.row for trial in trials])}, notes)


def _open_default_chain(subject: Subject, method: Method) -> OpenedRecipe:
    benchmark = subject.benchmark
    return open_inputs(Recipe.from_method(method, benchmark.pretrained, benchmark.experts), benchmark=benchmark)


def _time_pair(trial: TimedMethod, watch: Stopwatch, reference: OpenedRecipe, seconds_before: float) -> float:
    """Time a method and then the reference, which took ``seconds_before`` earlier; returns the reference's seconds."""
    if trial.problem or trial.total_seconds > MAX_SECONDS:
        return seconds_before
    try:
        seconds = watch(trial.opened)
    except Cancelled:
        raise
    except MergingError as error:
        trial.problem = str(error)
        return seconds_before
    seconds_after = watch(reference)
    trial.total_seconds += seconds
    trial.ratios.append(2 * seconds / (seconds_before + seconds_after))
    return seconds_after
