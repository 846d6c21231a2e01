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

from merging.analysis.registry import kind
from merging.analysis.stored import MEMORY
from merging.analysis.subject import MeasurementResult, PlannedTrial, TrialInputs
from merging.analysis.trials.kept import KeptAnswers
from merging.analysis.trials.merges import most_memory
from merging.checkpoints.digests import DIGESTS
from merging.errors import MergingError, WorkerError, WorkersGone
from merging.files.short_digest import short_digest
from merging.formats.handed_out import handed_out
from merging.formats.opening import open_models
from merging.tasks.context import Context
from merging.tasks.kinds import TRIAL, Plain
from merging.workers.fan_out import FanOut, WorkerTask
from merging.workers.workers import Workers

if TYPE_CHECKING:
    from merging.benchmarks.benchmark import Benchmark
    from merging.checkpoints.checkpoint import Checkpoint

STEPS = 1000  # of progress for a trial of weight 1
Compute = Callable[[TrialInputs, Mapping[str, Any], Context], Plain]


def computation(key: str) -> Compute:
    """What does one trial of a measurement. Raises StoreError if there is no such measurement."""
    if not (place := kind(key).trial):
        raise WorkerError(f"{kind(key).title} does not consist of trials.")
    module, _, name = place.partition(":")
    function: Compute = getattr(importlib.import_module(module), name)
    return function


def models_of(benchmark: Benchmark) -> list[Checkpoint]:
    """The checkpoints that trials on a benchmark may merge. Raises CheckpointError if one is missing or damaged."""
    pretrained, experts = open_models(benchmark.pretrained, benchmark.experts)
    return [pretrained, *experts.values()]


def name_of(key: str, benchmark: Benchmark, models: Sequence[Checkpoint], asked: Mapping[str, Any]) -> str:
    """The name of a trial, which depends on all that its answer depends on; digests must be known, or are computed."""
    digests = [DIGESTS.digest(model) for model in models]
    return short_digest(json.dumps([key, kind(key).version, benchmark.digest, [*benchmark.experts], digests, asked]))


@dataclass
class Trials:
    """The trials of one measurement, done here or by ``workers``.

    ``context`` is warned where a worker is lost. Afterwards ``devices`` says what workers computed on,
    ``memory`` what they said of memory that did not suffice.
    """

    key: str
    inputs: TrialInputs
    context: Context
    workers: Workers | None
    kept: KeptAnswers | None = None
    devices: dict[str, None] = field(default_factory=dict)
    memory: dict[str, None] = field(default_factory=dict)

    def answers(self, planned: Sequence[PlannedTrial]) -> list[Plain]:
        """The answers of trials, in their order.

        Raises:
            MergingError: what the first trial that failed raised. WorkerError: a trial took three workers down with it,
                or a worker sees other files. Cancelled: as asked. WorkersGone: there was no worker for a minute; what
                was answered is kept.
        """
        return self._here(planned) if self.workers is None else self._on(self.workers, planned)

    def about(self) -> Plain:
        """The device, if workers computed."""
        return {"device": ", ".join(self.devices)} if self.devices else {}

    def noted(self, result: MeasurementResult) -> MeasurementResult:
        """The result with what workers said of their memory."""
        return result._replace(notes={**result.notes, MEMORY: " ".join(self.memory)}) if self.memory else result

    def _here(self, planned: Sequence[PlannedTrial]) -> list[Plain]:
        parts, compute = self.context.parts({trial.name: trial.weight for trial in planned}), computation(self.key)
        return [compute(self.inputs, trial.asked, parts[trial.name]) for trial in planned]

    def _on(self, workers: Workers, planned: Sequence[PlannedTrial]) -> list[Plain]:
        """What takes longest is begun first. Raises WorkerError if a merge does not fit into each worker's memory."""
        if workers.memory:
            recipes = [trial.asked["recipe"] for trial in planned if "recipe" in trial.asked]
            workers.check_memory(most_memory(self.inputs.benchmark, recipes, self.context.device), "a trial")
        names = [self.name(trial) for trial in planned]
        by_name = dict(zip(names, planned, strict=True))
        before = self.kept.read(workers.kind) if self.kept else {}
        found = {name: before[name] for name in by_name if name in before}

        def take(task: WorkerTask, answer: Plain) -> None:
            found[task.name] = answer
            for sentence in answer["warnings"]:
                self.context.warn(str(sentence))

        def fail(task: WorkerTask, error: MergingError) -> None:
            trial = by_name[task.name].name
            raise WorkerError(f"Trial “{trial}”: {error}") if isinstance(error, WorkerError) else error

        missing = [name for name in by_name if name not in found]
        missing.sort(key=lambda name: by_name[name].weight, reverse=True)
        tasks = [WorkerTask(name, partial(self.request, by_name[name]), _steps(by_name[name])) for name in missing]
        fan = FanOut(TRIAL, workers, take, fail, self.context, len(by_name), len(found))
        try:
            fan.run(tasks)
        except WorkersGone as gone:
            kept = self.kept is not None and self.kept.keep(workers.kind, before | found)
            words = f"{len(found)} of {len(by_name)} trials are kept." if kept else "It begins anew."
            raise WorkersGone(f"{gone} {words} Resume when they are back.") from None
        for name in names:
            self.devices[str(found[name]["device"])] = None
            self.memory |= dict.fromkeys(found[name]["memory"])
        return [dict(found[name]["trial"]) for name in names]

    @cached_property
    def _models(self) -> list[Checkpoint]:
        return models_of(self.inputs.benchmark)

    @cached_property
    def _handed_out(self) -> list[Plain]:
        return [handed_out(model) for model in self._models]

    def name(self, trial: PlannedTrial) -> str:
        """The name of a trial, see ``name_of``."""
        return name_of(self.key, self.inputs.benchmark, self._models, trial.asked)

    def request(self, trial: PlannedTrial) -> Plain:
        """What a worker is asked for a trial."""
        return {
            "experts": list(self.inputs.benchmark.experts),
            "digests": self._handed_out,
            "name": self.name(trial),
            "measurement": self.key,
            "trial": trial.asked,
            "benchmark": str(self.inputs.benchmark.folder),
            "device": self.context.device,
        }


def _steps(trial: PlannedTrial) -> int:
    return max(1, round(STEPS * trial.weight))
