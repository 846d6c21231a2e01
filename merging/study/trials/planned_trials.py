"""Computes the trials of a measurement, one after another in this process, or on workers.

A trial is one of many independent merges with its evaluation. An answer has the result as "trial"; that of a worker
also has the worker's "device", and "memory", warnings that its memory was insufficient.

Answers are in the order of the plan, not in the order in which trials end, so that tables have the same bytes.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from merging.base.errors import MergingError, WorkerError
from merging.base.files.short_digest import short_digest
from merging.models.digest_cache import DIGESTS
from merging.models.formats.files_on_workers import digest_for_request
from merging.models.formats.model_sources import open_models
from merging.study.analysis.measurement_registry import find_measurement
from merging.study.analysis.measurement_store import MEMORY_NOTE
from merging.study.analysis.measurement_subject import MeasurementResult, PlannedTrial, TrialInputs
from merging.study.trials.trial_answers import StoredAnswers
from merging.study.trials.trial_merges import estimate_largest_merge
from merging.tasks.context import Context
from merging.tasks.kinds import TRIAL, Plain
from merging.tasks.workers.fan_out import WorkerTask
from merging.tasks.workers.pools import open_workers
from merging.tasks.workers.task_map import TaskMap
from merging.tasks.workers.workers import Workers

if TYPE_CHECKING:
    from merging.images.benchmarks.benchmark import Benchmark
    from merging.models.checkpoint import Checkpoint

STEPS_PER_TRIAL = 1000  # of progress for a trial of weight 1
ComputeTrial = Callable[[TrialInputs, Mapping[str, Any], Context], Plain]


def find_computation(key: str) -> ComputeTrial:
    """The function that computes one trial of a measurement.

    Raises:
        StoreError: there is no such measurement. WorkerError: it does not consist of trials.
    """
    if not (path := find_measurement(key).trial):
        raise WorkerError(f"{find_measurement(key).title} does not consist of trials.")
    module, _, name = path.partition(":")
    function: ComputeTrial = getattr(importlib.import_module(module), name)
    return function


def open_benchmark_models(benchmark: Benchmark) -> list[Checkpoint]:
    """The checkpoints that trials on a benchmark may merge. Raises CheckpointError if one is missing or damaged."""
    pretrained, experts = open_models(benchmark.pretrained, benchmark.experts)
    return [pretrained, *experts.values()]


def make_trial_name(key: str, benchmark: Benchmark, models: Sequence[Checkpoint], request: Mapping[str, Any]) -> str:
    """The name of a trial, which depends on everything that its answer depends on; unknown digests are computed."""
    digests = [DIGESTS.digest(model) for model in models]
    return short_digest(
        json.dumps([key, find_measurement(key).version, benchmark.digest, [*benchmark.experts], digests, request])
    )


@dataclass
class Trials:
    """The trials of one measurement, computed in this process or by the workers of the ``context``.

    After the computation, ``devices`` are the names of the workers' devices, and ``memory`` their warnings about
    insufficient memory.
    """

    key: str
    inputs: TrialInputs
    context: Context
    stored_answers: StoredAnswers | None = None
    devices: dict[str, None] = field(default_factory=dict)
    memory: dict[str, None] = field(default_factory=dict)

    def compute_answers(self, planned: Sequence[PlannedTrial]) -> list[Plain]:
        """The answers of trials, in their order.

        Raises:
            MergingError: the error of the first trial that failed. WorkerError: three workers ended on the same trial,
                or a worker sees other files. Cancelled: the user cancelled. WorkersGone: there was no worker for a
                minute; the answers so far are stored.
        """
        with open_workers(self.context) as workers:
            names = [trial.name if workers is None else self.make_name(trial) for trial in planned]
            answers = self._find_answers(dict(zip(names, planned, strict=True)), workers)
        if workers is not None:
            for name in names:
                self.devices[str(answers[name]["device"])] = None
                self.memory |= dict.fromkeys(answers[name]["memory"])
        return [dict(answers[name]["trial"]) for name in names]

    def list_device_facts(self) -> Plain:
        """The workers' devices as a fact, if workers computed the trials."""
        return {"device": ", ".join(self.devices)} if self.devices else {}

    def add_notes(self, result: MeasurementResult) -> MeasurementResult:
        """The result with the workers' warnings about memory in its notes."""
        return result._replace(notes={**result.notes, MEMORY_NOTE: " ".join(self.memory)}) if self.memory else result

    def _find_answers(self, planned: Mapping[str, PlannedTrial], workers: Workers | None) -> Mapping[str, Plain]:
        """{name: answer}; workers begin with the longest trials, and trials with stored answers are not repeated.

        Raises:
            WorkerError: a merge does not fit into each worker's memory.
        """
        earlier_answers: dict[str, Plain] = {}
        if workers is not None and workers.memory:
            recipes = [trial.request["recipe"] for trial in planned.values() if "recipe" in trial.request]
            workers.check_memory(estimate_largest_merge(self.inputs.benchmark, recipes, self.context.device), "a trial")
        if workers is not None:
            earlier_answers = self.stored_answers.read(workers.kind) if self.stored_answers else {}
        answers = {name: earlier_answers[name] for name in planned if name in earlier_answers}

        def store_and_describe() -> str:
            """Store the answers so far, and return a sentence about them."""
            stored = (
                workers and self.stored_answers and self.stored_answers.store(workers.kind, earlier_answers | answers)
            )
            sentence = f"{len(answers)} of {len(planned)} trials are stored." if stored else "It starts again."
            return f"{sentence} Resume when they are back."

        def raise_trial_error(task: WorkerTask, error: MergingError) -> None:
            trial = planned[task.name].name
            raise WorkerError(f"Trial “{trial}”: {error}") if isinstance(error, WorkerError) else error

        tasks = [
            WorkerTask(
                name,
                partial(self.make_request, trial),
                partial(self._compute, trial),
                max(1, round(STEPS_PER_TRIAL * trial.weight)),
            )
            for name, trial in planned.items()
            if name not in answers
        ]
        if workers is not None:
            tasks.sort(key=lambda task: planned[task.name].weight, reverse=True)
        TaskMap(
            TRIAL, self.context, lambda _, answer: answer,
            lambda task, answer: answers.update({task.name: answer}), raise_trial_error,
            total=len(planned), describe_remains=store_and_describe,
        ).run(tasks, workers)  # fmt: skip
        return answers

    def _compute(self, trial: PlannedTrial, context: Context) -> Plain:
        return {"trial": find_computation(self.key)(self.inputs, trial.request, context)}

    @cached_property
    def _models(self) -> list[Checkpoint]:
        return open_benchmark_models(self.inputs.benchmark)

    @cached_property
    def _request_digests(self) -> list[Plain]:
        return [digest_for_request(model) for model in self._models]

    def make_name(self, trial: PlannedTrial) -> str:
        """The name of a trial, see ``make_trial_name``."""
        return make_trial_name(self.key, self.inputs.benchmark, self._models, trial.request)

    def make_request(self, trial: PlannedTrial) -> Plain:
        """The request to a worker for a trial."""
        return {
            "experts": list(self.inputs.benchmark.experts),
            "digests": self._request_digests,
            "name": self.make_name(trial),
            "measurement": self.key,
            "trial": trial.request,
            "benchmark": str(self.inputs.benchmark.folder),
            "device": self.context.device,
        }
