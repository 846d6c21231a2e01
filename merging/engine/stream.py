"""Checkpoints as a stream of slots: one tensor (or one cache-sized piece of one) times the number of experts."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from merging.checkpoints.families import Parameter
from merging.engine.inputs import Inputs
from merging.engine.outputs import Notes
from merging.methods.method import Edit, Merge
from merging.methods.moments import Moments
from merging.methods.params import Params
from merging.methods.slot import Slot
from merging.progress import Meter

T = TypeVar("T")

RUNNING = "Running exemplars"


@dataclass(frozen=True)
class Stage:
    """One step of a chain, with its survey's statistics."""

    method: Edit | Merge
    params: Params
    statistics: Any = None

    @property
    def elementwise(self) -> bool:
        """Whether the step may see tensors in pieces."""
        return self.method.elementwise(self.params)

    @property
    def after_merge(self) -> bool:
        """Whether the step edits the merged task vector."""
        return isinstance(self.method, Edit) and self.method.after_merge(self.params)

    def drops(self, parameter: Parameter) -> bool:
        """Whether the step zeroes a tensor for every expert."""
        return isinstance(self.method, Edit) and self.method.drops(parameter, self.statistics)

    def edit(self, slot: Slot, mask: Tensor | None) -> tuple[Slot, Tensor | None]:
        """A slot after this edit, and a mask (*S) of what is kept (None: all) with what this edit keeps of it."""
        assert isinstance(self.method, Edit)
        kept = self.method.kept(slot, self.params, self.statistics)
        mask = kept if mask is None else mask if kept is None else mask & kept
        return self.run(slot), mask

    def run(self, slot: Slot) -> Slot:
        """A slot after this step."""
        return slot.with_task_vectors(self.method.run(slot, self.params, self.statistics))


@dataclass(frozen=True)
class Stream:
    """The slots as the stages so far leave them; every loop reads the files again."""

    inputs: Inputs
    stages: tuple[Stage, ...]
    in_pieces: bool
    meter: Meter
    phase: str
    notes: Notes | None = None

    @property
    def experts(self) -> tuple[str, ...]:
        """Names of the experts, in order."""
        return self.inputs.names

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """What is merged, in forward order."""
        return self.inputs.parameters

    @property
    def numels(self) -> tuple[int, ...]:
        """Scalars per tensor."""
        return self.inputs.numels

    @property
    def numel(self) -> int:
        """Scalars per expert, over all tensors."""
        return sum(self.inputs.numels)

    @property
    def dead_numel(self) -> int:
        """Scalars of an unused text tower that count in global quantiles."""
        return self.inputs.dead.numel

    @property
    def dead_tensors(self) -> int:
        """Tensors of an unused text tower that count in global quantiles."""
        return self.inputs.dead.tensors

    def __iter__(self) -> Iterator[Slot]:
        for raw in self._raw():
            yield self._edited(raw)[0]

    def masked(self) -> Iterator[tuple[Slot, Tensor | None]]:
        """Every slot with its hard mask: False where an edit decided that the pretrained value stays."""
        for raw in self._raw():
            yield self._edited(raw, with_mask=True)

    def _raw(self) -> Iterator[Slot]:
        """The slots before the edits; taking the next one reports this one as done."""
        # While one block is worked on, the next one is read: one core each, instead of two that wait at every barrier.
        threads = _threads(1 if self.in_pieces else None)
        with threads, _ahead(self.inputs.slots(self.in_pieces, self._drops)) as blocks:
            for block in blocks:
                for raw in self.inputs.pieces(block) if self.in_pieces else (self._connected(block),):
                    yield raw
                    self.meter.advance(_work(raw), self.phase, raw.name)

    def _connected(self, slot: Slot) -> Slot:
        """The slot of a whole tensor, with ``tick``, ``note`` and its inputs connected to this stream."""

        def tick(share: float) -> None:
            self.meter.within(round(share * _work(slot)), self.phase, slot.name)

        def read_inputs() -> tuple[Moments, ...] | None:
            return self.inputs.input_moments(slot.parameter, lambda detail: self.meter.within(0, RUNNING, detail))

        def note(table: str, **row: Any) -> None:
            if self.notes is not None:
                self.notes.add(table, slot, row)

        return replace(slot, read_inputs=read_inputs, tick=tick, note=note)

    def _drops(self, parameter: Parameter) -> bool:
        return any(stage.drops(parameter) for stage in self.stages)

    def _edited(self, slot: Slot, with_mask: bool = False) -> tuple[Slot, Tensor | None]:
        """A slot after the edits, and (if ``with_mask``) which of its scalars they keep (None: all)."""
        mask = None
        for stage in self.stages:
            slot, mask = stage.edit(slot, mask) if with_mask else (stage.run(slot), None)
        return slot, mask


def _work(slot: Slot) -> int:
    return slot.task_vectors.numel() + slot.pretrained.numel()


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    """Let torch use ``count`` threads per operation for a while; None leaves it as it is."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _ahead(items: Iterator[T]) -> Iterator[Iterator[T]]:
    """The same items, each made by another thread while the one before it is in use."""
    with ThreadPoolExecutor(1) as pool:

        def prefetched() -> Iterator[T]:
            following = pool.submit(next, items, None)
            while (item := following.result()) is not None:
                following = pool.submit(next, items, None)
                yield item

        yield prefetched()
