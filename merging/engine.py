"""Runs a recipe: check, survey, stream tensor by tensor, write.

Memory holds one tensor (or, for elementwise chains, one piece of a tensor) times the number of experts, never a model
per expert. Everything is checked before the first number is written, and a result that fails half-way is not returned.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from merging.checkpoints import Checkpoint, Dead
from merging.errors import MergingError
from merging.evidence import CapturedInputs, Evidence, GivenInputs, LayerInputs
from merging.exemplars import TaskExemplars, check_needs, take
from merging.families import Role
from merging.fit import FitReport, fit
from merging.method import Edit, Slot
from merging.progress import Cancel, Meter, Progress, ProgressCallback
from merging.stream import Inputs, Notes, Stage, Stream

if TYPE_CHECKING:
    import pandas as pd

    from merging.recipe import Recipe

__all__ = ["Cancel", "MergeResult", "Progress", "ProgressCallback", "Sink", "choose_device", "run"]

WHAT = ("tensor", "order", "section", "role", "part", "numel", "itemsize")  # columns that say what a tensor is
MERGED = "merged"  # what the one output of a merge is called; merges per task name their outputs by expert


@dataclass(frozen=True)
class MergeResult:
    """What came out. Names, shapes, dtypes and order of every state dict are the pretrained model's.

    ``state_dict`` is empty where sinks took the tensors; ``task_state_dicts`` is {expert: state dict} for merges that
    give one model per task, else None. ``tables`` are tidy, by name (tensors, saliency, masks, thresholds, ...).
    """

    state_dict: dict[str, Tensor]
    task_state_dicts: dict[str, dict[str, Tensor]] | None
    tables: dict[str, pd.DataFrame]
    recipe: Recipe
    device: str
    seconds: float
    warnings: tuple[str, ...] = ()


class Sink(Protocol):
    """Takes merged tensors, whole or in flat pieces."""

    def write(self, name: str, values: Tensor, start: int = 0) -> None: ...


class MemorySink:
    """Collects a state dict."""

    def __init__(self, pretrained: Checkpoint) -> None:
        infos = pretrained.infos.items()
        self.state_dict = {name: torch.empty(info.shape, dtype=info.dtype) for name, info in infos}

    def write(self, name: str, values: Tensor, start: int = 0) -> None:
        """Put ``values`` at flat position ``start``."""
        self.state_dict[name].reshape(-1)[start : start + values.numel()].copy_(values.reshape(-1))


@dataclass
class Tally:
    """What is counted while one tensor goes by, with one entry of the lists for each model that is made."""

    kept: list[int]
    squared: list[float]
    kept_by_any: int = 0
    pretrained_squared: float = 0.0

    def add(self, slot: Slot, changes: list[Tensor]) -> None:
        """Count one slot, whole or a piece."""
        for index, change in enumerate(changes):
            self.kept[index] += int(torch.count_nonzero(change))
            self.squared[index] += _squared_norm(change)
        self.pretrained_squared += _squared_norm(slot.pretrained)
        if len(changes) > 1:
            self.kept_by_any += int(torch.stack([change != 0 for change in changes]).any(dim=0).sum())
        else:
            self.kept_by_any = self.kept[0]


class Output:
    """Adds merged task vectors to the pretrained weights, hands them to sinks, and keeps count per tensor."""

    def __init__(self, pretrained: Checkpoint, names: tuple[str, ...], make_sink: Callable[[str], Sink]) -> None:
        self.sinks = {name: make_sink(name) for name in names}
        self._infos = pretrained.infos
        self._tallies: dict[str, Tally] = {}

    def add(self, slot: Slot, change: Tensor, kept: Tensor | None) -> None:
        """Write one slot; ``change`` is (*S), or (K, *S) with one sink per expert."""
        changes = [change] if len(self.sinks) == 1 and change.shape == slot.pretrained.shape else list(change)
        for sink, one in zip(self.sinks.values(), changes, strict=True):
            values = slot.pretrained + one
            if kept is not None:  # bit for bit: adding zero would turn -0.0 into 0.0
                values = torch.where(kept, values, slot.pretrained)
            stored = values.to(self._infos[slot.name].dtype)
            if not torch.isfinite(stored.sum(dtype=values.dtype)) and not torch.isfinite(stored).all():
                raise _overflow(slot.name, values, stored.dtype)
            sink.write(slot.name, stored, slot.start)
        count = len(changes)
        tally = self._tallies.setdefault(slot.name, Tally([0] * count, [0.0] * count))
        tally.add(slot, changes if kept is None else [one * kept for one in changes])

    def tables(self, inputs: Inputs, per_task: bool) -> dict[str, pd.DataFrame]:
        """The table "tensors": a row per merged tensor; with one model per task "task_tensors": a row per expert, too.

        They say what the tensor is, how many of its scalars differ from pretrained (in any of the models, before they
        are rounded to its dtype), the norms of the change (the root of the mean square over the models) and of the
        weights, and the bytes that a scalar takes.
        """
        import pandas as pd

        rows = []
        for p, numel in zip(inputs.parameters, inputs.numels, strict=True):
            tally = self._tallies[p.name]
            what = (p.name, p.order, p.section, str(p.role), p.part, numel, self._infos[p.name].dtype.itemsize)
            norm = (sum(tally.squared) / len(tally.squared)) ** 0.5
            rows.append((*what, tally.kept_by_any, norm, tally.pretrained_squared**0.5))
        found = {"tensors": pd.DataFrame(rows, columns=[*WHAT, "kept_numel", "change_norm", "pretrained_norm"])}
        if per_task:
            tallies = self._tallies.items()
            parts = [
                (expert, name, tally.kept[index], tally.squared[index] ** 0.5)
                for index, expert in enumerate(inputs.names)
                for name, tally in tallies
            ]
            found["task_tensors"] = pd.DataFrame(parts, columns=["expert", "tensor", "kept_numel", "change_norm"])
        return found


def _overflow(name: str, values: Tensor, dtype: torch.dtype) -> MergingError:
    size = float(values.abs().nan_to_num(float("inf")).max())
    kind = str(dtype).removeprefix("torch.")
    return MergingError(
        f"The merged tensor {name!r} cannot be stored: its largest number is {size:g}, and {kind} ends at "
        f"{torch.finfo(dtype).max:g}. Nothing was kept; use a smaller scaling."
    )


def _squared_norm(values: Tensor) -> float:
    return float(torch.linalg.vector_norm(values, dtype=torch.float64) ** 2)


def run(
    recipe: Recipe,
    pretrained: Checkpoint,
    experts: Mapping[str, Checkpoint],
    *,
    layer_inputs: LayerInputs | None = None,
    exemplars: Mapping[str, Any] | None = None,
    device: str = "auto",
    progress: ProgressCallback | None = None,
    cancel: Cancel | None = None,
    make_sink: Callable[[str], Sink] | None = None,
) -> MergeResult:
    """Run a recipe on opened checkpoints; see ``merging.merge`` for the arguments and errors.

    ``make_sink`` is called with "merged" (or with each expert's name, for merges that give one model per task); with it
    the tensors go there piece by piece and the result's state dicts stay empty.
    """
    started = time.monotonic()
    report = fit(pretrained, experts, values=False)
    report.raise_if_bad()
    shown = take(exemplars)
    check_needs(recipe, experts, layer_inputs, shown)
    where = choose_device(device)
    evidence = _evidence(recipe, pretrained, experts, layer_inputs, shown, where)
    dead = pretrained.dead if recipe.count_dead_params else Dead()
    inputs = Inputs(pretrained, experts, evidence, where, dead)
    meter = Meter(inputs.work * _passes(recipe), progress, cancel)
    meter.check()

    names = inputs.names if recipe.per_task else (MERGED,)
    output = Output(pretrained, names, make_sink or (lambda _: MemorySink(pretrained)))
    notes = Notes()
    with _gradients(recipe, inputs, shown, meter) as inputs:
        stages, tables, warnings = _survey(recipe, inputs, meter)
        _stream(inputs, stages, meter, output, notes)
    _copy_buffers(pretrained, output)

    states = {name: sink.state_dict for name, sink in output.sinks.items() if isinstance(sink, MemorySink)}
    return MergeResult(
        state_dict={} if recipe.per_task else states.get(MERGED, {}),
        task_state_dicts=states if recipe.per_task else None,
        tables={**output.tables(inputs, recipe.per_task), **tables, **notes.tables()},
        recipe=recipe,
        device=describe_device(inputs.device),
        seconds=time.monotonic() - started,
        warnings=(*_fit_warnings(report), *warnings),
    )


def _evidence(
    recipe: Recipe,
    pretrained: Checkpoint,
    experts: Mapping[str, Checkpoint],
    layer_inputs: LayerInputs | None,
    exemplars: Mapping[str, TaskExemplars] | None,
    device: torch.device,
) -> Evidence | None:
    if all(method.gradients for method, _ in recipe.data_methods):  # nobody looks at layer inputs
        return None
    if layer_inputs is not None:
        return GivenInputs(layer_inputs, tuple(experts), pretrained, device)
    images = {name: task.images for name, task in (exemplars or {}).items()}
    return CapturedInputs(experts, images, device, like=pretrained)


@contextmanager
def _gradients(
    recipe: Recipe, inputs: Inputs, exemplars: Mapping[str, TaskExemplars] | None, meter: Meter
) -> Iterator[Inputs]:
    """The inputs with the gradients that the chain asks for, which last as long as the block."""
    wanted = {method.gradients for method, _ in recipe.data_methods if method.gradients}
    if not wanted:
        yield inputs
        return
    from merging.gradients import gather  # its imports take a while

    seed = recipe.exemplars.seed if recipe.exemplars else 0
    with gather(wanted, inputs, exemplars or {}, seed, meter) as found:
        yield replace(inputs, gradients=found)


def _passes(recipe: Recipe) -> int:
    """Loops over all tensors that the chain will make, for the estimate of time left."""
    pairs = zip(recipe.methods, recipe.steps, strict=True)
    return 1 + sum(method.survey_passes for method, step in pairs if method.surveys(step.params))


def _survey(
    recipe: Recipe, inputs: Inputs, meter: Meter
) -> tuple[tuple[Stage, ...], dict[str, pd.DataFrame], tuple[str, ...]]:
    """Every stage with what its survey found, each on the task vectors as the earlier stages leave them."""
    stages: tuple[Stage, ...] = ()
    tables: dict[str, pd.DataFrame] = {}
    warnings: tuple[str, ...] = ()
    for method, step in zip(recipe.methods, recipe.steps, strict=True):
        found = None
        if method.surveys(step.params) and method.survey is not None:
            in_pieces = all(stage.elementwise for stage in stages) and method.elementwise(step.params)
            stream = Stream(inputs, stages, in_pieces, meter, f"Surveying for {method.title}")
            survey = method.survey(stream, step.params)
            found = survey.found
            for name, table in survey.tables.items():
                tables[f"{name}_{len(stages) + 1}" if name in tables else name] = table
            warnings += survey.warnings
        stages = (*stages, Stage(method, step.params, found))
    return stages, tables, warnings


def _stream(inputs: Inputs, stages: tuple[Stage, ...], meter: Meter, output: Output, notes: Notes) -> None:
    *edits, merge = stages
    assert all(isinstance(stage.method, Edit) for stage in edits)
    in_pieces = all(stage.elementwise for stage in stages)
    stream = Stream(inputs, tuple(edits), in_pieces, meter, f"Merging with {merge.method.title}", notes)
    for slot, kept in stream.masked():
        output.add(slot, merge.method.run(slot, merge.params, merge.found), kept)


def _copy_buffers(pretrained: Checkpoint, output: Output) -> None:
    for parameter in pretrained.parameters:
        if parameter.role == Role.BUFFER:
            for sink in output.sinks.values():
                sink.write(parameter.name, pretrained.read(parameter.name))


def _fit_warnings(report: FitReport) -> tuple[str, ...]:
    return (report.text(),) if report.warnings else ()


def choose_device(wanted: str = "auto") -> torch.device:
    """The device to compute on: "auto" takes CUDA, then MPS, then the CPU.

    Raises:
        MergingError: that device is not here.
    """
    if wanted == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(wanted)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise MergingError(f"Device {wanted!r} is not available here: {str(error).splitlines()[0]}") from None
    return device


def describe_device(device: torch.device) -> str:
    """'CPU' or the accelerator's name, for the record beside every number."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    return device.type.upper()
