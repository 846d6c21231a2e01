"""The pass of a chain that merges: it turns slots into stored values, in this process or on workers."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Protocol

import torch
from torch import Tensor

from merging.base.errors import MergingError
from merging.base.numerics.finite import all_finite
from merging.base.progress import Meter
from merging.engine.layer_inputs import OnDetail
from merging.engine.merged_inputs import MergedInputs
from merging.engine.outputs import Notes, Output, Rows, StoredSlot, merged_values
from merging.engine.run_inputs import RunInputs
from merging.engine.stream import Stage, Stream
from merging.methods.method import Edit, Merge
from merging.methods.moments import Moments
from merging.methods.slot import Slot
from merging.models.families import UNMERGED, Parameter, Role


class RemoteTensors(Protocol):
    """Workers that compute whole tensors in place of this process."""

    @property
    def names(self) -> Collection[str]:
        """The names of the tensors; they do not depend on each other."""
        ...

    def compute(self, take: Callable[[StoredSlot, Rows, str], None]) -> None:
        """Compute the tensors and call ``take`` with each as it arrives: stored values, rows of tables, the phase."""
        ...


@dataclass(frozen=True)
class MergedSlot:
    """A merged tensor, or a piece of one, ready to be written.

    ``weights`` are the merge's weights before edits that follow it, for merges that merge one layer after the other:
    the inputs of later layers pass through these. A merge that counts in the same pass gives the ``count`` of this
    slot, and whether the slot is ``final``.
    """

    stored: StoredSlot
    weights: Tensor | None  # (*S)
    count: Tensor | None = None  # scalar
    final: bool = True


@dataclass(frozen=True)
class MergeStep:
    """The merge of a chain and the edits after it, which turn a slot into the values that are written."""

    merge: Stage
    after: tuple[Stage, ...]
    output: Output
    merged_inputs: MergedInputs | None
    counts: bool
    lock: Lock = field(default_factory=Lock)

    def merge_slot(self, slot: Slot, mask: Tensor | None, on_detail: OnDetail) -> MergedSlot:
        """The merged values of a slot; ``mask`` (*S) says which scalars edits kept (None: all)."""

        def read_inputs() -> tuple[Moments, ...] | None:
            with self.lock:  # tensors of a section share its inputs
                return self.merged_inputs.moments(slot.parameter, on_detail) if self.merged_inputs is not None else None

        readable = slot if self.merged_inputs is None else replace(slot, read_inputs=read_inputs)
        provisional = self.merge.provisional(readable) if self.counts else None
        change, kept = provisional.change if provisional is not None else self.merge.run(readable).task_vectors, mask
        weights = None if self.merged_inputs is None else merged_values(slot, change, kept)
        for stage in self.after:
            rows = change.reshape(len(self.output.sinks), *slot.pretrained.shape)
            edited, kept = stage.edit(replace(slot, experts=tuple(self.output.sinks), task_vectors=rows), kept)
            change = edited.task_vectors.reshape(change.shape)
        stored = self.output.prepare(slot, change, kept)
        if provisional is None:
            return MergedSlot(stored, weights)
        return MergedSlot(stored, weights, provisional.count, bool(provisional.final.cpu()))


def find_cut_tensors(inputs: RunInputs, stages: tuple[Stage, ...]) -> Callable[[Parameter], bool]:
    """The predicate of tensors that are processed in pieces: large, and elementwise for every step."""
    return lambda parameter: inputs.is_large(parameter) and all(stage.elementwise(parameter) for stage in stages)


def merging_pass(
    inputs: RunInputs, chosen: RunInputs, stages: tuple[Stage, ...], meter: Meter, output: Output, notes: Notes
) -> None:
    """Merge and write every tensor. A merge that counts in the same pass merges undecided pieces again afterwards."""
    *edits, merge = stages
    assert isinstance(merge.method, Merge) and all(isinstance(stage.method, Edit) for stage in edits)
    before, after = (tuple(stage for stage in edits if stage.after_merge == later) for later in (False, True))
    in_pieces, counts = all(stage.is_elementwise for stage in stages), merge.method.provisional is not None
    phase = f"Merging with {merge.method.title}"
    stream = Stream(chosen, before, in_pieces, meter, phase, notes, cut=find_cut_tensors(inputs, stages))
    if counts and (chosen is not inputs or not in_pieces):  # most whole tensors would be merged again
        meter.total += inputs.work if in_pieces else 0  # otherwise ``count_passes`` includes this pass
        counting = replace(stream, inputs=inputs, notes=None)
        merge, counts = merge.with_count(sum(counting.map(lambda slot: stages[-1].provisional(slot).count))), False

    step = MergeStep(merge, after, output, inputs.merged_inputs, counts)
    count: Tensor | None = None
    again: dict[str, list[tuple[int, int]]] = {}
    for merged in stream.masked_map(step.merge_slot):
        if merged.weights is not None and step.merged_inputs is not None:
            step.merged_inputs.add(merged.stored.name, merged.weights)
        output.add(merged.stored)
        if merged.count is not None:
            count = merged.count if count is None else count + merged.count
        if not merged.final:
            again.setdefault(merged.stored.name, []).append(merged.stored.span)
    if again and count is not None:
        step = replace(step, merge=merge.with_count(count), counts=False)
        for merged in replace(stream, spans=again).masked_map(step.merge_slot):
            output.add(merged.stored)


def write_remote(remote: RemoteTensors, inputs: RunInputs, meter: Meter, output: Output, notes: Notes) -> None:
    """Write the tensors that workers compute as they arrive; add the rows on tensors in the tensors' order."""
    noted, models = dict[str, Rows](), len(inputs.experts) + 1

    def take(stored: StoredSlot, rows: Rows, phase: str) -> None:
        output.add(stored)
        noted[stored.name] = rows
        meter.advance(models * inputs.pretrained.infos[stored.name].numel, phase, stored.name)

    remote.compute(take)
    for parameter in inputs.in_capture_order:
        notes.extend(noted.get(parameter.name, {}))


def write_unmerged(inputs: RunInputs, output: Output) -> None:
    """Write the tensors that no method sees: running statistics as the experts' mean, the others from pretrained.

    With one model per task, every model gets the running statistics of its own expert.
    """
    for parameter in inputs.pretrained.parameters:
        if parameter.role == Role.STATISTIC:
            _write_statistic(parameter.name, inputs, output)
        elif parameter.role in UNMERGED:
            for sink in output.sinks.values():
                sink.write(parameter.name, inputs.pretrained.read(parameter.name))


def _write_statistic(name: str, inputs: RunInputs, output: Output) -> None:
    """Write a running statistic to every sink: the mean, or the expert's own where the sink is named by an expert."""
    values = {expert: checkpoint.read(name).double() for expert, checkpoint in inputs.experts.items()}
    mean = torch.stack(list(values.values())).mean(dim=0)
    for expert, sink in output.sinks.items():
        stored = values.get(expert, mean).to(inputs.pretrained.infos[name].dtype)
        if not all_finite(stored, torch.float64):
            raise MergingError(f"The running statistic {name!r} is not finite in the experts. Nothing was saved.")
        sink.write(name, stored)
