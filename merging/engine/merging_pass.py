"""The pass of a chain that merges: it turns slots into stored values, in this process or on workers.

Some merges, such as TIES, count over all tensors: the sum of the elected signs decides exact ties. They can count in
this pass, with a result for every slot before the count is complete; slots whose result the count can change are then
merged again.
"""

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

    def compute(self, on_tensor: Callable[[StoredSlot, Rows, str], None]) -> None:
        """Compute the tensors and call ``on_tensor`` with each as it arrives: stored values, its rows of the run's
        tables, phase.
        """
        ...


@dataclass(frozen=True)
class MergedSlot:
    """A merged tensor, or a piece of one, ready to be written.

    ``weights`` are the merged weights without the edits that follow the merge; they are set only if the inputs of later
    layers are computed with the layers merged so far. For merges that count in the same pass, ``count`` is the slot's
    contribution, and ``final`` whether the slot is the same for every possible count.
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
    merged_inputs: MergedInputs | None  # layer inputs that pass through the layers merged so far
    counts: bool  # whether the merge counts over all tensors in this pass
    lock: Lock = field(default_factory=Lock)

    def merge_slot(self, slot: Slot, mask: Tensor | None, on_detail: OnDetail) -> MergedSlot:
        """The merged values of a slot; ``mask`` (*S) is true for the scalars that the edits keep (None: all)."""

        def read_inputs() -> tuple[Moments, ...] | None:
            with self.lock:  # tensors of one block share its inputs, which are computed once
                return self.merged_inputs.moments(slot.parameter, on_detail) if self.merged_inputs is not None else None

        slot_with_inputs = slot if self.merged_inputs is None else replace(slot, read_inputs=read_inputs)
        before_count = self.merge.run_before_count(slot_with_inputs) if self.counts else None
        change, kept = (
            before_count.change if before_count is not None else self.merge.run(slot_with_inputs).task_vectors,
            mask,
        )
        weights = None if self.merged_inputs is None else merged_values(slot, change, kept)
        for stage in self.after:
            # A row per merged model: one, or one per expert.
            rows = change.reshape(len(self.output.sinks), *slot.pretrained.shape)
            edited, kept = stage.edit(replace(slot, experts=tuple(self.output.sinks), task_vectors=rows), kept)
            change = edited.task_vectors.reshape(change.shape)
        stored = self.output.prepare(slot, change, kept)
        if before_count is None:
            return MergedSlot(stored, weights)
        return MergedSlot(stored, weights, before_count.count, bool(before_count.final.cpu()))


def make_cut_predicate(inputs: RunInputs, stages: tuple[Stage, ...]) -> Callable[[Parameter], bool]:
    """A function that tells whether a tensor is processed in pieces: if it is large and all steps are elementwise."""
    return lambda parameter: inputs.is_large(parameter) and all(stage.is_elementwise_on(parameter) for stage in stages)


def run_merging_pass(
    inputs: RunInputs, selected: RunInputs, stages: tuple[Stage, ...], meter: Meter, output: Output, notes: Notes
) -> None:
    """Merge and write the tensors of ``selected``; a count over all tensors uses ``inputs``.

    A merge that counts in the same pass merges the pieces again whose result the count can change.
    """
    *edits, merge = stages
    assert isinstance(merge.method, Merge) and all(isinstance(stage.method, Edit) for stage in edits)
    before = tuple(stage for stage in edits if not stage.after_merge)
    after = tuple(stage for stage in edits if stage.after_merge)
    in_pieces, counts = all(stage.is_elementwise for stage in stages), merge.method.run_before_count is not None
    phase = f"Merging with {merge.method.title}"
    stream = Stream(selected, before, in_pieces, meter, phase, notes, cut=make_cut_predicate(inputs, stages))
    # Some of the tensors do not give the count, and with whole tensors nearly all would be merged twice: count first.
    if counts and (selected is not inputs or not in_pieces):
        meter.total += inputs.work if in_pieces else 0  # for whole tensors, the meter's total includes this extra pass
        counting = replace(stream, inputs=inputs, notes=None)
        total = sum(counting.map(lambda slot: stages[-1].run_before_count(slot).count))
        merge, counts = merge.with_count(total), False

    step = MergeStep(merge, after, output, inputs.merged_inputs, counts)
    count: Tensor | None = None
    undecided: dict[str, list[tuple[int, int]]] = {}  # {tensor: spans of its pieces}
    for merged in stream.masked_map(step.merge_slot):
        if merged.weights is not None and step.merged_inputs is not None:
            step.merged_inputs.add(merged.stored.name, merged.weights)
        output.add(merged.stored)
        if merged.count is not None:
            count = merged.count if count is None else count + merged.count
        if not merged.final:
            undecided.setdefault(merged.stored.name, []).append(merged.stored.span)
    if undecided and count is not None:
        step = replace(step, merge=merge.with_count(count), counts=False)
        for merged in replace(stream, spans=undecided).masked_map(step.merge_slot):
            output.add(merged.stored)


def write_remote(remote: RemoteTensors, inputs: RunInputs, meter: Meter, output: Output, notes: Notes) -> None:
    """Write the tensors that workers compute as they arrive; then note their rows of tables in the tensors' order."""
    rows_by_tensor, model_count = dict[str, Rows](), len(inputs.experts) + 1

    def on_tensor(stored: StoredSlot, rows: Rows, phase: str) -> None:
        output.add(stored)
        rows_by_tensor[stored.name] = rows
        meter.advance(model_count * inputs.pretrained.infos[stored.name].numel, phase, stored.name)

    remote.compute(on_tensor)
    for parameter in inputs.in_capture_order:
        notes.extend(rows_by_tensor.get(parameter.name, {}))


def write_unmerged(inputs: RunInputs, output: Output) -> None:
    """Write the tensors that no method sees: the experts' mean running statistics, others from pretrained.

    With one model per task, every model gets its expert's running statistics.
    """
    for parameter in inputs.pretrained.parameters:
        if parameter.role == Role.STATISTIC:
            _write_statistic(parameter.name, inputs, output)
        elif parameter.role in UNMERGED:
            for sink in output.sinks.values():
                sink.write(parameter.name, inputs.pretrained.read(parameter.name))


def _write_statistic(name: str, inputs: RunInputs, output: Output) -> None:
    """Write a running statistic to every sink: the expert's own if the sink has an expert's name, else the mean."""
    values = {expert: checkpoint.read(name).double() for expert, checkpoint in inputs.experts.items()}
    mean = torch.stack(list(values.values())).mean(dim=0)
    for expert, sink in output.sinks.items():
        stored = values.get(expert, mean).to(inputs.pretrained.infos[name].dtype)
        if not all_finite(stored, torch.float64):
            raise MergingError(f"The running statistic {name!r} is not finite in the experts. Nothing was saved.")
        sink.write(name, stored)
