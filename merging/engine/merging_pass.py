"""The pass of a chain that merges: what turns slots into what is written, here or elsewhere."""

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
    """Who computes whole tensors in place of this process."""

    @property
    def names(self) -> Collection[str]:
        """The tensors; they do not depend on each other."""
        ...

    def compute(self, take: Callable[[StoredSlot, Rows, str], None]) -> None:
        """Hand on each tensor as it comes: what is written of it, rows of tables, and how far all of them are."""
        ...


@dataclass(frozen=True)
class MergedSlot:
    """A merged tensor, or a piece of one, as it is written.

    ``own`` are the merge's own weights where layers are merged one after the other: an edit after the merge changes its
    own tensors alone. A merge that counts meanwhile gives the ``count`` of this slot, and whether it is ``final``.
    """

    stored: StoredSlot
    own: Tensor | None
    count: Tensor | None = None
    final: bool = True


@dataclass(frozen=True)
class MergeStep:
    """The merge of a chain with the edits after it: what turns every slot into what is written of it."""

    merge: Stage
    after: tuple[Stage, ...]
    output: Output
    path: MergedInputs | None
    counts: bool
    lock: Lock = field(default_factory=Lock)

    def merge_slot(self, slot: Slot, mask: Tensor | None, on_detail: OnDetail) -> MergedSlot:
        """What is written of a slot."""

        def read_inputs() -> tuple[Moments, ...] | None:
            with self.lock:  # tensors of a section share what enters it
                return self.path.moments(slot.parameter, on_detail) if self.path is not None else None

        seen = slot if self.path is None else replace(slot, read_inputs=read_inputs)
        made = self.merge.provisional(seen) if self.counts else None
        change, kept = made.change if made is not None else self.merge.run(seen).task_vectors, mask
        own = None if self.path is None else merged_values(slot, change, kept)
        for stage in self.after:
            rows = change.reshape(len(self.output.sinks), *slot.pretrained.shape)
            edited, kept = stage.edit(replace(slot, experts=tuple(self.output.sinks), task_vectors=rows), kept)
            change = edited.task_vectors.reshape(change.shape)
        stored = self.output.prepare(slot, change, kept)
        if made is None:
            return MergedSlot(stored, own)
        return MergedSlot(stored, own, made.count, bool(made.final.cpu()))


def find_cut_tensors(inputs: RunInputs, stages: tuple[Stage, ...]) -> Callable[[Parameter], bool]:
    """Which tensors are too large to be held whole where no step looks at them as a whole."""
    return lambda parameter: inputs.is_large(parameter) and all(stage.elementwise(parameter) for stage in stages)


def merging_pass(
    inputs: RunInputs, chosen: RunInputs, stages: tuple[Stage, ...], meter: Meter, output: Output, notes: Notes
) -> None:
    """The pass that merges; of a merge that counts meanwhile, pieces in which the count decides are merged again."""
    *edits, merge = stages
    assert isinstance(merge.method, Merge) and all(isinstance(stage.method, Edit) for stage in edits)
    before, after = (tuple(stage for stage in edits if stage.after_merge == later) for later in (False, True))
    in_pieces, counts = all(stage.is_elementwise for stage in stages), merge.method.provisional is not None
    phase = f"Merging with {merge.method.title}"
    stream = Stream(chosen, before, in_pieces, meter, phase, notes, cut=find_cut_tensors(inputs, stages))
    if counts and (chosen is not inputs or not in_pieces):  # most whole tensors would be merged again
        meter.total += inputs.work if in_pieces else 0  # else this pass was foreseen
        counting = replace(stream, inputs=inputs, notes=None)
        merge, counts = merge.with_count(sum(counting.map(lambda slot: stages[-1].provisional(slot).count))), False

    ending = MergeStep(merge, after, output, inputs.through_merged, counts)
    count: Tensor | None = None
    again: dict[str, list[tuple[int, int]]] = {}
    for one in stream.masked_map(ending.merge_slot):
        if one.own is not None and ending.path is not None:
            ending.path.add(one.stored.name, one.own)
        output.add(one.stored)
        if one.count is not None:
            count = one.count if count is None else count + one.count
        if not one.final:
            again.setdefault(one.stored.name, []).append(one.stored.span)
    if again and count is not None:
        ending = replace(ending, merge=merge.with_count(count), counts=False)
        for one in replace(stream, places=again).masked_map(ending.merge_slot):
            output.add(one.stored)


def write_remote(elsewhere: RemoteTensors, inputs: RunInputs, meter: Meter, output: Output, notes: Notes) -> None:
    """Write what is computed elsewhere as it comes; what is noted of tensors is added in their order."""
    noted, models = dict[str, Rows](), len(inputs.experts) + 1

    def take(stored: StoredSlot, rows: Rows, phase: str) -> None:
        output.add(stored)
        noted[stored.name] = rows
        meter.advance(models * inputs.pretrained.infos[stored.name].numel, phase, stored.name)

    elsewhere.compute(take)
    for parameter in inputs.in_capture_order:
        notes.extend(noted.get(parameter.name, {}))


def write_unmerged(inputs: RunInputs, output: Output) -> None:
    """Write what no method sees: running statistics as the experts' mean, or each expert's own; the rest pretrained."""
    for parameter in inputs.pretrained.parameters:
        if parameter.role == Role.STATISTIC:
            _write_statistic(parameter.name, inputs, output)
        elif parameter.role in UNMERGED:
            for sink in output.sinks.values():
                sink.write(parameter.name, inputs.pretrained.read(parameter.name))


def _write_statistic(name: str, inputs: RunInputs, output: Output) -> None:
    """With one model per task every model gets the statistics of its own expert."""
    values = {expert: checkpoint.read(name).double() for expert, checkpoint in inputs.experts.items()}
    mean = torch.stack(list(values.values())).mean(dim=0)
    for expert, sink in output.sinks.items():
        stored = values.get(expert, mean).to(inputs.pretrained.infos[name].dtype)
        if not all_finite(stored, torch.float64):
            raise MergingError(f"The running statistic {name!r} is not finite in the experts. Nothing was kept.")
        sink.write(name, stored)
