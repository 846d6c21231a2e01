"""The task "trial": one trial of a measurement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from merging.base.devices import choose_device, describe_device, retry_on_oom
from merging.images.benchmarks.benchmark import Benchmark
from merging.images.benchmarks.benchmark_folders import resolve_benchmark
from merging.models.formats.files_on_workers import first_missing, remember_received_digest, unseen_file_error
from merging.study.analysis.measurement_subject import TrialInputs
from merging.study.trials.planned_trials import find_computation, make_trial_name, open_benchmark_models
from merging.tasks.context import Context
from merging.tasks.kinds import Plain, Request, TaskKind

if TYPE_CHECKING:
    import torch


def open_inputs(request: Request) -> TrialInputs:
    """The inputs that the trials of a measurement share. Raises WorkerError if it does not consist of trials."""
    find_computation(str(request["measurement"]))
    return TrialInputs(Benchmark.load(resolve_benchmark(str(request["benchmark"]))))


def name_trial(inputs: TrialInputs, request: Request) -> str:
    """The name of the trial in this process. Raises WorkerError if this process does not see a model."""
    benchmark = inputs.benchmark
    if missing := _find_missing(benchmark, request):
        raise unseen_file_error(missing, "MERGESCOPE_BENCHMARK")
    models = open_benchmark_models(benchmark)
    if len(models) == len(request["digests"]):
        for model, digest in zip(models, request["digests"], strict=True):
            remember_received_digest(model, digest)
    return make_trial_name(str(request["measurement"]), benchmark, models, request["trial"])


def _find_missing(benchmark: Benchmark, request: Request) -> str:
    """A model that this process does not see; empty if it sees all."""
    for name in request["experts"]:
        if name not in benchmark.experts:
            return f"the expert {name} in {benchmark.folder}"
    return first_missing(benchmark.models().values())


def compute_trial(inputs: TrialInputs, request: Request, context: Context) -> Plain:
    """The answer of a trial, its device, and warnings about insufficient memory."""
    compute = find_computation(str(request["measurement"]))

    def compute_on(device: torch.device) -> tuple[dict[str, Any], str]:
        return compute(inputs, request["trial"], context.on_device(device)), describe_device(device)

    (answer, device), memory = retry_on_oom(choose_device(context.device), compute_on)
    return {"trial": answer, "device": device, "memory": list(memory)}


KIND = TaskKind("trial", open_inputs, compute_trial, name_trial, shared_keys=("measurement", "benchmark"))
