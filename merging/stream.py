"""Checkpoints as a stream of slots: one tensor (or one cache-sized piece of one) times the number of experts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import torch
from torch import Tensor

from merging.checkpoints import Checkpoint, Dead
from merging.errors import CheckpointError
from merging.evidence import Evidence, Moments, Tell, silent
from merging.families import OUTPUT, Parameter, Role
from merging.fit import fit
from merging.method import Edit, Gradients, Merge, Slot
from merging.params import Params
from merging.progress import Meter

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")

RUNNING = "Running exemplars"

BLOCK_CPU = 1 << 18  # scalars per expert that are read at a time
BLOCK_GPU = 1 << 24
PIECE_CPU = 1 << 15  # scalars per expert that are worked on at a time: K + 1 such pieces stay in the cache


@dataclass(frozen=True)
class Stage:
    """One step of a chain, with what its survey found."""

    method: Edit | Merge
    params: Params
    found: Any = None

    @property
    def elementwise(self) -> bool:
        """Whether it may see tensors in pieces."""
        return self.method.elementwise(self.params)


class GradientReader(Protocol):
    """One statistic of every expert's gradients, read in pieces."""

    def read(self, name: str, start: int, stop: int) -> Tensor:
        """Scalars [start, stop) of a tensor, (K, stop - start)."""
        ...


@dataclass(frozen=True)
class Inputs:
    """The checkpoints of one run and how they are read."""

    pretrained: Checkpoint
    experts: Mapping[str, Checkpoint]
    evidence: Evidence | None
    device: torch.device
    dead: Dead = field(default_factory=Dead)  # what global quantiles count besides
    gradients: Mapping[Gradients, GradientReader] = field(default_factory=dict)  # those that the chain asks for
    parameters: tuple[Parameter, ...] = field(init=False)  # what is merged, in forward order
    dtype: torch.dtype = field(init=False)
    _spare: list[list[Tensor]] = field(init=False, default_factory=list, repr=False)  # buffers that no pass uses now

    def __post_init__(self) -> None:
        merged = tuple(p for p in self.pretrained.parameters if p.role != Role.BUFFER)
        double = any(self.pretrained.infos[p.name].dtype == torch.float64 for p in merged)
        object.__setattr__(self, "parameters", merged)
        object.__setattr__(self, "dtype", torch.float64 if double else torch.float32)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the experts, in order."""
        return tuple(self.experts)

    @property
    def numels(self) -> tuple[int, ...]:
        """Scalars per merged tensor."""
        return tuple(self.pretrained.infos[p.name].numel for p in self.parameters)

    @property
    def work(self) -> int:
        """Scalars read by one pass over everything that is merged."""
        return sum(self.numels) * (len(self.experts) + 1)

    def slots(self, in_blocks: bool, dropped: Callable[[Parameter], bool]) -> Iterator[Slot]:
        """Every slot, whole or in flat blocks; of dropped tensors only the pretrained is read."""
        size = BLOCK_CPU if self.device.type == "cpu" else BLOCK_GPU
        # Blocks take turns in three buffers (one in use, one being read, one to spare): fresh memory for every block
        # would cost more time in page faults than the arithmetic takes. A slot is good until the loop goes on.
        # They are kept for the next pass: once such large blocks are given back, the allocator stops returning memory.
        # open_clip registers the output projection first, but captured inputs come layer by layer.
        ordered = sorted(self.parameters, key=lambda p: p.section == OUTPUT)
        if not in_blocks:
            yield from (self.whole(parameter, dropped(parameter)) for parameter in ordered)
            return
        buffers = self._spare.pop() if self._spare else [self._empty(size) for _ in range(3)]
        try:
            turns = itertools.cycle(buffers)
            for parameter in ordered:
                numel = self.pretrained.infos[parameter.name].numel
                for start in range(0, max(numel, 1), size):  # an empty tensor is one empty block
                    yield self._slot(parameter, start, min(start + size, numel), dropped(parameter), next(turns))
        finally:
            self._spare.append(buffers)

    def whole(self, parameter: Parameter, dropped: bool = False) -> Slot:
        """One tensor as a slot, in memory of its own."""
        shape = self.pretrained.infos[parameter.name].shape
        slot = self._slot(parameter, 0, self.pretrained.infos[parameter.name].numel, dropped, None)
        return replace(
            slot,
            pretrained=slot.pretrained.reshape(shape),
            task_vectors=slot.task_vectors.reshape(len(self.experts), *shape),
            look=partial(self.look, parameter),
            gradients={kind: rows.reshape(len(self.experts), *shape) for kind, rows in slot.gradients.items()},
        )

    def look(self, parameter: Parameter, tell: Tell = silent) -> tuple[Moments, ...] | None:
        """The moments of what enters a tensor, one per expert; None where there is no evidence of it."""
        return self.evidence.moments(parameter, tell) if self.evidence is not None else None

    def pieces(self, block: Slot) -> Iterator[Slot]:
        """A flat block in pieces that fit the processor's cache: views, nothing is copied."""
        size, numel = block.pretrained.numel(), block.pretrained.numel()
        if self.device.type == "cpu":
            size = PIECE_CPU
        for start in range(0, max(numel, 1), max(size, 1)):
            part = slice(start, start + size)
            base, vectors = block.pretrained[part], block.task_vectors[:, part]
            gradients = {kind: rows[:, part] for kind, rows in block.gradients.items()}
            yield Slot(block.parameter, block.experts, base, vectors, block.start + start, gradients=gradients)

    def _empty(self, numel: int) -> Tensor:
        return torch.empty((len(self.experts), numel), dtype=self.dtype, device=self.device)

    def _slot(self, parameter: Parameter, start: int, stop: int, dropped: bool, buffer: Tensor | None) -> Slot:
        name = parameter.name
        base = self._read(self.pretrained, name, start, stop)
        gradients = {kind: file.read(name, start, stop) for kind, file in self.gradients.items()}
        if dropped:
            nothing = torch.zeros(1, dtype=self.dtype, device=self.device).expand(len(self.experts), stop - start)
            return Slot(parameter, self.names, base, nothing, start, gradients=gradients)
        vectors = (self._empty(stop - start) if buffer is None else buffer)[:, : stop - start]
        for row, expert in zip(vectors, self.experts.values(), strict=True):
            torch.sub(self._read(expert, name, start, stop), base, out=row)
        # One sum is NaN or infinite if any number is; only then is every number looked at.
        if not torch.isfinite(vectors.sum()) and not torch.isfinite(vectors).all():
            self._explain_not_finite(name)
        return Slot(parameter, self.names, base, vectors, start, gradients=gradients)

    def _read(self, checkpoint: Checkpoint, name: str, start: int, stop: int) -> Tensor:
        return checkpoint.read_flat(name, start, stop).to(self.device, self.dtype)

    def _explain_not_finite(self, name: str) -> None:
        """Name every tensor that is not finite, in all files, not only the first one met."""
        fit(self.pretrained, self.experts, values=True).raise_if_bad()
        raise CheckpointError(
            f"The difference between an expert and the pretrained model overflows in tensor {name!r}, although all its "
            "numbers are finite. Are these checkpoints of one family?"
        )


class Notes:
    """What methods tell of single tensors while they merge: rows of tables."""

    def __init__(self) -> None:
        self._rows: dict[str, list[dict[str, Any]]] = {}

    def add(self, table: str, slot: Slot, row: Mapping[str, Any]) -> None:
        """One more row, which begins with what the tensor is."""
        p = slot.parameter
        what = {"tensor": p.name, "order": p.order, "section": p.section, "role": str(p.role), "part": p.part}
        self._rows.setdefault(table, []).append({**what, "numel": slot.pretrained.numel(), **row})

    def tables(self) -> dict[str, pd.DataFrame]:
        """The tables by name, in forward order."""
        import pandas as pd

        found = {name: pd.DataFrame(rows) for name, rows in self._rows.items()}
        return {name: table.sort_values("order", kind="stable", ignore_index=True) for name, table in found.items()}


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
        """Tensors of it."""
        return self.inputs.dead.tensors

    def __iter__(self) -> Iterator[Slot]:
        for raw in self._raw():
            yield self._edited(raw)[0]

    def masked(self) -> Iterator[tuple[Slot, Tensor | None]]:
        """Every slot with its hard mask: False where an edit decided that the pretrained value stays."""
        for raw in self._raw():
            yield self._edited(raw, judged=True)

    def _raw(self) -> Iterator[Slot]:
        """The slots before the edits; asking for the next one reports this one as done."""
        # While one block is worked on, the next one is read: one core each, instead of two that wait at every barrier.
        threads = _threads(1 if self.in_pieces else None)
        with threads, _ahead(self.inputs.slots(self.in_pieces, self._drops)) as blocks:
            for block in blocks:
                for raw in self.inputs.pieces(block) if self.in_pieces else (self._attended(block),):
                    yield raw
                    self.meter.advance(_work(raw), self.phase, raw.name)

    def _attended(self, slot: Slot) -> Slot:
        """A whole tensor to which a method can say how far it is and what it found, and which knows its inputs."""

        def tick(share: float) -> None:
            self.meter.within(round(share * _work(slot)), self.phase, slot.name)

        def look() -> tuple[Moments, ...] | None:
            return self.inputs.look(slot.parameter, lambda detail: self.meter.within(0, RUNNING, detail))

        def note(table: str, **row: Any) -> None:
            if self.notes is not None:
                self.notes.add(table, slot, row)

        return replace(slot, look=look, tick=tick, note=note)

    def _drops(self, parameter: Parameter) -> bool:
        edits = [(stage.method, stage.found) for stage in self.stages]
        return any(isinstance(edit, Edit) and edit.drops(parameter, found) for edit, found in edits)

    def _edited(self, slot: Slot, judged: bool = False) -> tuple[Slot, Tensor | None]:
        """A slot after the edits, and (if ``judged``) which of its scalars they keep (None: all)."""
        mask = None
        for stage in self.stages:
            if judged and isinstance(stage.method, Edit):
                kept = stage.method.kept(slot, stage.params, stage.found)
                mask = kept if mask is None else mask if kept is None else mask & kept
            slot = slot.with_task_vectors(stage.method.run(slot, stage.params, stage.found))
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

        def handed_on() -> Iterator[T]:
            following = pool.submit(next, items, None)
            while (item := following.result()) is not None:
                following = pool.submit(next, items, None)
                yield item

        yield handed_on()
