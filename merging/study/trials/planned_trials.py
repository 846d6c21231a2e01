"""The trials of a measurement, one after another here, or on workers.

Answers come in the order of the plan, whoever was first, so that tables have the same bytes.
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
from merging.study.analysis.measurement_store import MEMORY
from merging.study.analysis.measurement_subject import MeasurementResult, PlannedTrial, TrialInputs
from merging.study.trials.trial_answers import StoredAnswers
from merging.study.trials.trial_merges import most_memory
from merging.tasks.context import Context
from merging.tasks.kinds import TRIAL, Plain
from merging.tasks.workers.fan_out import WorkerTask
from merging.tasks.workers.pools import open_workers
from merging.tasks.workers.task_map import TaskMap
from merging.tasks.workers.workers import Workers

if TYPE_CHECKING:
    from merging.images.benchmarks.benchmark import Benchmark
    from merging.models.checkpoint import Checkpoint

STEPS = 1000  # of progress for a trial of weight 1
Compute = Callable[[TrialInputs, Mapping[str, Any], Context], Plain]


def find_computation(key: str) -> Compute:
    """What does one trial of a measurement. Raises StoreError if there is no such measurement."""
    if not (place := find_measurement(key).trial):
        raise WorkerError(f"{find_measurement(key).title} does not consist of trials.")
    module, _, name = place.partition(":")
    function: Compute = getattr(importlib.import_module(module), name)
    return function


def open_benchmark_models(benchmark: Benchmark) -> list[Checkpoint]:
    """The checkpoints that trials on a benchmark may merge. Raises CheckpointError if one is missing or damaged."""
    pretrained, experts = open_models(benchmark.pretrained, benchmark.experts)
    return [pretrained, *experts.values()]


def make_trial_name(key: str, benchmark: Benchmark, models: Sequence[Checkpoint], asked: Mapping[str, Any]) -> str:
    """The name of a trial, which depends on all that its answer depends on; digests must be known, or are computed."""
    digests = [DIGESTS.digest(model) for model in models]
    return short_digest(
        json.dumps([key, find_measurement(key).version, benchmark.digest, [*benchmark.experts], digests, asked])
    )


@dataclass
class Trials:
    """The trials of one measurement, done here or by the workers of the ``context``.

    Afterwards ``devices`` says what workers computed on, ``memory`` what they said of memory that did not suffice.
    """

    key: str
    inputs: TrialInputs
    context: Context
    kept: StoredAnswers | None = None
    devices: dict[str, None] = field(default_factory=dict)
    memory: dict[str, None] = field(default_factory=dict)

    def answers(self, planned: Sequence[PlannedTrial]) -> list[Plain]:
        """The answers of trials, in their order.

        Raises:
            MergingError: what the first trial that failed raised. WorkerError: a trial took three workers down with it,
                or a worker sees other files. Cancelled: as asked. WorkersGone: there was no worker for a minute; what
                was answered is kept.
        """
        with open_workers(self.context) as workers:
            names = [each.name if workers is None else self.name(each) for each in planned]
            found = self._find_answers(dict(zip(names, planned, strict=True)), workers)
        if workers is not None:
            for name in names:
                self.devices[str(found[name]["device"])] = None
                self.memory |= dict.fromkeys(found[name]["memory"])
        return [dict(found[name]["trial"]) for name in names]

    def about(self) -> Plain:
        """The device, if workers computed."""
        return {"device": ", ".join(self.devices)} if self.devices else {}

    def add_notes(self, result: MeasurementResult) -> MeasurementResult:
        """The result with what workers said of their memory."""
        return result._replace(notes={**result.notes, MEMORY: " ".join(self.memory)}) if self.memory else result

    def _find_answers(self, planned: Mapping[str, PlannedTrial], workers: Workers | None) -> Mapping[str, Plain]:
        """Answers by name; what takes longest is begun first on workers, and what they answered before is not asked.

        Raises:
            WorkerError: a merge does not fit into each worker's memory.
        """
        before: dict[str, Plain] = {}
        if workers is not None and workers.memory:
            recipes = [trial.request["recipe"] for trial in planned.values() if "recipe" in trial.request]
            workers.check_memory(most_memory(self.inputs.benchmark, recipes, self.context.device), "a trial")
        if workers is not None:
            before = self.kept.read(workers.kind) if self.kept else {}
        found = {name: before[name] for name in planned if name in before}

        def say_lost() -> str:
            kept = workers and self.kept and self.kept.store(workers.kind, before | found)
            words = f"{len(found)} of {len(planned)} trials are kept." if kept else "It begins anew."
            return f"{words} Resume when they are back."

        def fail(task: WorkerTask, error: MergingError) -> None:
            trial = planned[task.name].name
            raise WorkerError(f"Trial “{trial}”: {error}") if isinstance(error, WorkerError) else error

        tasks = [
            WorkerTask(
                name, partial(self.request, trial), partial(self._compute, trial), max(1, round(STEPS * trial.weight))
            )
            for name, trial in planned.items()
            if name not in found
        ]
        if workers is not None:
            tasks.sort(key=lambda task: planned[task.name].weight, reverse=True)
        TaskMap(
            TRIAL, self.context, lambda _, said: said, lambda task, answer: found.update({task.name: answer}), fail,
            total=len(planned), say_lost=say_lost,
        ).run(tasks, workers)  # fmt: skip
        return found

    def _compute(self, trial: PlannedTrial, context: Context) -> Plain:
        return {"trial": find_computation(self.key)(self.inputs, trial.request, context)}

    @cached_property
    def _models(self) -> list[Checkpoint]:
        return open_benchmark_models(self.inputs.benchmark)

    @cached_property
    def _request_digests(self) -> list[Plain]:
        return [digest_for_request(model) for model in self._models]

    def name(self, trial: PlannedTrial) -> str:
        """The name of a trial, see ``make_trial_name``."""
        return make_trial_name(self.key, self.inputs.benchmark, self._models, trial.request)

    def request(self, trial: PlannedTrial) -> Plain:
        """What a worker is asked for a trial."""
        return {
            "experts": list(self.inputs.benchmark.experts),
            "digests": self._request_digests,
            "name": self.name(trial),
            "measurement": self.key,
            "trial": trial.request,
            "benchmark": str(self.inputs.benchmark.folder),
            "device": self.context.device,
        }
