"""The unit ``trial``: a worker does one trial of a measurement, from what it sees itself.

It names the trial from its own files and refuses another name than the one that was asked for, as for points of sweeps.
What trials keep for the next ones stays in the process.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from merging.analysis.subject import TrialInputs
from merging.analysis.trials.spread import computation, models_of, name_of
from merging.benchmarks.benchmark import Benchmark
from merging.benchmarks.folders import seen_here
from merging.devices import choose_device, describe_device, in_room
from merging.formats.handed_out import believe, does_not_see, first_missing
from merging.tasks.context import QUIET
from merging.workers.sentences import sees_others

if TYPE_CHECKING:
    import torch

_inputs: dict[str, TrialInputs] = {}  # the last one of this process
_one_at_a_time = threading.Lock()


def trial(request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of a trial, what it was computed on, and sentences about memory that did not suffice.

    Raises:
        WorkerError: this worker does not see a file, or sees another one. MergingError: the trial cannot be computed.
    """
    with _one_at_a_time:  # what is kept is for one thread
        compute, inputs = computation(str(request["measurement"])), _checked(request)

        def on(device: torch.device) -> tuple[dict[str, Any], str]:
            return compute(inputs, request["trial"], QUIET.on(device)), describe_device(device)

        (answer, device), memory = in_room(choose_device(str(request["device"])), on)
        return {"trial": answer, "device": device, "memory": list(memory)}


def _checked(request: Mapping[str, Any]) -> TrialInputs:
    """The inputs of a trial, if this worker sees the files that it was asked for."""
    missing = ""
    for _ in range(2):
        inputs = _opened(request)
        missing = _missing(inputs.benchmark, request)
        if not missing and _named(inputs.benchmark, request) == request["name"]:
            return inputs
        _inputs.clear()  # the benchmark may have changed since it was opened
    raise does_not_see(missing, "MERGESCOPE_BENCHMARK") if missing else sees_others("trial")


def _opened(request: Mapping[str, Any]) -> TrialInputs:
    key = repr((request["measurement"], request["benchmark"]))
    if key not in _inputs:
        _inputs.clear()
        _inputs[key] = TrialInputs(Benchmark.load(seen_here(str(request["benchmark"]))))
    return _inputs[key]


def _missing(benchmark: Benchmark, request: Mapping[str, Any]) -> str:
    """A model that is not here; empty if all are."""
    for name in request["experts"]:
        if name not in benchmark.experts:
            return f"the expert {name} in {benchmark.folder}"
    return first_missing((benchmark.pretrained, *benchmark.experts.values()))


def _named(benchmark: Benchmark, request: Mapping[str, Any]) -> str:
    """What this worker calls the trial."""
    models = models_of(benchmark)
    if len(models) == len(request["digests"]):
        for model, given in zip(models, request["digests"], strict=True):
            believe(model, given)
    return name_of(str(request["measurement"]), benchmark, models, request["trial"])
