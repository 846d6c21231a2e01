"""Checkpoints as a stream of slots: one tensor (or one cache-sized piece of one) times the number of experts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from threading import Condition
from typing import Any, TypeVar

import torch
from torch import Tensor

from merging.base.parallel import WAKE, Report, Unit, map_in_threads, prefetch, run_units
from merging.base.progress import Meter
from merging.base.threads import ONE_THREAD, limit_to_one_thread, parallel_pieces, piece_memory
from merging.engine.layer_inputs import OnDetail
from merging.engine.outputs import Notes
from merging.engine.run_inputs import Places, RunInputs
from merging.methods.method import Edit, Merge
from merging.methods.moments import Moments, ignore_detail
from merging.methods.params import Params
from merging.methods.slot import Provisional, Slot
from merging.models.families import Parameter

T = TypeVar("T")

RUNNING = "Running exemplars"

Row = tuple[str, Slot, dict[str, Any]]  # a note: its table, the tensor that it is on, and columns


@dataclass(frozen=True)
class Stage:
    """One step of a chain, with its survey's statistics."""

    method: Edit | Merge
    params: Params
    statistics: Any = None

    @property
    def is_elementwise(self) -> bool:
        """Whether the step may see every tensor in pieces."""
        return self.method.is_elementwise(self.params)

    def elementwise(self, parameter: Parameter) -> bool:
        """Whether the step may see this tensor in pieces."""
        return self.method.elementwise(self.params, parameter)

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

    def provisional(self, slot: Slot) -> Provisional:
        """What a merge that still counts makes of a slot."""
        assert isinstance(self.method, Merge) and self.method.provisional is not None
        return self.method.provisional(slot, self.params, self.statistics)

    def with_count(self, count: Tensor | int) -> Stage:
        """This merge with what it counted in all slots."""
        return replace(self, statistics=self.statistics.with_votes(int(torch.as_tensor(count).cpu())))


@dataclass(frozen=True)
class Stream:
    """The slots as the stages so far leave them; every loop reads the files again."""

    inputs: RunInputs
    stages: tuple[Stage, ...]
    in_pieces: bool
    meter: Meter
    phase: str
    notes: Notes | None = None
    places: Places | None = None  # the pieces that ``map`` and ``masked_map`` work on; None: all
    cut: Callable[[Parameter], bool] = lambda parameter: False  # which tensors come in pieces although others are whole

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
        for part in self._split_stream():
            yield from part._slots()

    def _split_stream(self) -> list[Stream]:
        """This stream, cut where tensors that come in pieces and whole ones follow each other."""
        runs = [
            (cut, {p.name for p in group}) for cut, group in itertools.groupby(self.inputs.in_capture_order, self.cut)
        ]
        if self.in_pieces or not any(cut for cut, _ in runs):
            return [self]
        inputs = [replace(self.inputs, subset=frozenset(names)) for _, names in runs]
        return [replace(self, inputs=own, in_pieces=cut) for own, (cut, _) in zip(inputs, runs, strict=True)]

    def _slots(self) -> Iterator[Slot]:
        if self.in_pieces:
            yield from self._pieces(lambda raw: self._edit_slot(raw)[0])
            return
        # Whole tensors have one thread here, too, so that bytes do not depend on the cores.
        with limit_to_one_thread(self.inputs.device), prefetch(self.inputs.slots(False, self._drops)) as slots:
            for slot in slots:
                yield self._edit_slot(self._own_slot(slot))[0]
                self.meter.advance(_slot_work(slot), self.phase, slot.name)

    def sample_slots(self, stride: int) -> Iterator[Slot]:
        """A sample of one in so many scalars of each expert, as flat slots whose ``start`` says nothing.

        It is every so-many-th scalar, counted over all tensors, but one in so many runs of scalars where pieces are
        edited before: edits may depend on where a scalar is, and only the sample is computed.
        """
        if self.in_pieces:
            workers = parallel_pieces(self.inputs.device)
            reads = self._edited_runs(stride) if self.stages else self.inputs.sample_blocks(stride)
            with limit_to_one_thread(), map_in_threads(reads, workers, workers + 1, ONE_THREAD) as slots:
                for slot, scalars in slots:
                    yield slot
                    self.meter.advance((len(self.experts) + 1) * scalars, self.phase, slot.name)
            return
        passed = 0
        for slot in self:
            first, vectors = -passed % stride, slot.task_vectors.flatten(1)
            passed += vectors.shape[1]
            gradients = {kind: values.flatten(1)[:, first::stride] for kind, values in slot.gradients.items()}
            sample = slot.pretrained.flatten()[first::stride]
            yield replace(slot, pretrained=sample, task_vectors=vectors[:, first::stride], gradients=gradients)

    def _edited_runs(self, stride: int) -> Iterator[Callable[[], tuple[Slot, int]]]:
        """What reads and edits every run of a sample, and of how many scalars it is a sample."""
        reads, scalars = self.inputs.runs(self._drops, stride), sum(map(self._scalars, self.inputs.in_capture_order))
        scalars //= len(self.experts) + 1
        ends = [scalars * place // len(reads) for place in range(len(reads) + 1)]
        for read, (start, stop) in zip(reads, itertools.pairwise(ends), strict=True):
            yield partial(self._edited_run, read, stop - start)

    def _edited_run(self, read: Callable[[], Slot], scalars: int) -> tuple[Slot, int]:
        return self._edit_slot(read())[0], scalars

    def map(self, work: Callable[[Slot], T]) -> Iterator[T]:
        """What a function makes of every slot, in their order; several slots are worked on at once."""
        return self._each(lambda slot, _: work(self._edit_slot(slot)[0]))

    def masked_map(self, work: Callable[[Slot, Tensor | None, OnDetail], T]) -> Iterator[T]:
        """As ``map``, with every slot's hard mask: False where an edit decided that the pretrained value stays.

        The function also gets one to call with what it does meanwhile, which may raise Cancelled.
        """
        return self._each(lambda slot, on_detail: work(*self._edit_slot(slot, with_mask=True), on_detail))

    def _each(self, work: Callable[[Slot, OnDetail], T]) -> Iterator[T]:
        """What a function makes of every slot before the edits, in their order."""
        for part in self._split_stream():
            yield from part._pieces(lambda raw: work(raw, ignore_detail)) if part.in_pieces else part._map_layers(work)

    def _pieces(self, work: Callable[[Slot], T]) -> Iterator[T]:
        """What a function makes of every piece before the edits, in their order.

        Taking the next result reports this one's piece as done. Every thread reads a block and works on its pieces one
        after the other, instead of all threads on one piece: they would wait at every barrier, and bytes would depend
        on their number. Where one thread works, another one reads the next block meanwhile.
        """
        workers = parallel_pieces(self.inputs.device)
        with limit_to_one_thread():
            if workers == 1:
                with prefetch(self.inputs.slots(True, self._drops, self.places)) as blocks:
                    for block in blocks:
                        yield from self._report_results((raw, work(raw)) for raw in self.inputs.pieces(block))
                return
            started = workers + 1  # one of them is done, and its results are being taken
            tasks = (partial(self._block, read, work) for read in self.inputs.blocks(self._drops, started, self.places))
            with map_in_threads(tasks, workers, started, ONE_THREAD) as blocks:
                for results in blocks:
                    yield from self._report_results(results)

    def _block(self, read: Callable[[], Slot], work: Callable[[Slot], T]) -> list[tuple[Slot, T]]:
        return [(raw, work(raw)) for raw in self.inputs.pieces(read())]

    def _report_results(self, results: Iterable[tuple[Slot, T]]) -> Iterator[T]:
        for raw, result in results:
            yield result
            self.meter.advance(_slot_work(raw), self.phase, raw.name)

    def _own_slot(self, slot: Slot) -> Slot:
        unit = Unit[None](slot.name, _slot_work(slot), 0, 0, lambda _: None)
        return self._connect_slot(slot, partial(self._report, unit), _Turns(), 0, [])

    def _map_layers(self, work: Callable[[Slot, OnDetail], T]) -> Iterator[T]:
        """The results of whole tensors, each of them a unit of work, in their order.

        On the CPU every unit has one thread, and as many are worked on as torch may use threads: so matrices are
        decomposed on all cores, and the bytes of a result do not depend on their number.
        """
        workers = parallel_pieces(self.inputs.device)
        with ExitStack() as stack:
            stack.enter_context(limit_to_one_thread(self.inputs.device))
            if workers > 1:
                units = self._units(work, lambda parameter: self.inputs.read_whole(parameter, self._drops(parameter)))
                several = run_units(units, workers, piece_memory(), self._listen, ONE_THREAD)
                results: Iterator[tuple[T, list[Row]]] = stack.enter_context(closing(several))
            else:
                slots = stack.enter_context(prefetch(self.inputs.slots(False, self._drops)))
                units = self._units(work, lambda _: next(slots))
                results = (unit.run(partial(self._report, unit)) for unit in units)
            for parameter, (result, rows) in zip(self.inputs.in_capture_order, results, strict=True):
                if self.notes is not None:
                    for table, slot, row in rows:
                        self.notes.add(table, slot, row)
                yield result
                self.meter.advance(self._scalars(parameter), self.phase, parameter.name)

    def _units(
        self, work: Callable[[Slot, OnDetail], T], read: Callable[[Parameter], Slot]
    ) -> Iterator[Unit[tuple[T, list[Row]]]]:
        """What one tensor takes, for each: its name, the checkpoints, the chain and its statistics are all it needs."""
        turns = _Turns()
        for place, parameter in enumerate(self.inputs.in_capture_order):
            scalars, nbytes = self._scalars(parameter), self.inputs.layer_bytes(parameter)
            run = partial(self._run, work, read, parameter, turns, place)
            group = parameter.section if self.inputs.through_merged is not None else None
            yield Unit(parameter.name, scalars, nbytes, scalars * self.inputs.dtype.itemsize, run, group)

    def _run(
        self,
        work: Callable[[Slot, OnDetail], T],
        read: Callable[[Parameter], Slot],
        parameter: Parameter,
        turns: _Turns,
        place: int,
        report: Report,
    ) -> tuple[T, list[Row]]:
        """The result of one tensor, and the rows that its methods noted."""
        rows: list[Row] = []
        try:
            slot = self._connect_slot(read(parameter), report, turns, place, rows)
            return work(slot, partial(report, None)), rows
        finally:
            turns.leave(place)

    def _connect_slot(self, slot: Slot, report: Report, turns: _Turns, place: int, rows: list[Row]) -> Slot:
        """The slot of a whole tensor, with ``tick``, ``note`` and its inputs connected to this stream."""
        known: list[tuple[Moments, ...] | None] = []

        def read_inputs() -> tuple[Moments, ...] | None:
            if self.inputs.evidence is not None and not known:
                turns.wait(place, partial(report, None, ""))
                known.append(self.inputs.input_moments(slot.parameter, partial(report, None)))
                turns.leave(place)
            return known[0] if known else None

        def note(table: str, **row: Any) -> None:
            rows.append((table, slot, row))

        return replace(slot, read_inputs=read_inputs, report_share=lambda share: report(share, ""), note=note)

    def _report(self, unit: Unit[Any], share: float | None, detail: str = "") -> None:
        """Report what a unit does that is worked on alone."""
        self._listen(round((share or 0.0) * unit.work), detail, unit.name)

    def _listen(self, done: int, detail: str, name: str) -> None:
        """Report so much of the current work as done without counting it; without a name there are no news."""
        if name:
            self.meter.report_part(done, RUNNING if detail else self.phase, detail or name)
        else:
            self.meter.check()

    def _scalars(self, parameter: Parameter) -> int:
        return (len(self.experts) + 1) * self.inputs.pretrained.infos[parameter.name].numel

    def _drops(self, parameter: Parameter) -> bool:
        return any(stage.drops(parameter) for stage in self.stages)

    def _edit_slot(self, slot: Slot, with_mask: bool = False) -> tuple[Slot, Tensor | None]:
        """A slot after the edits, and (if ``with_mask``) which of its scalars they keep (None: all)."""
        mask = None
        for stage in self.stages:
            slot, mask = stage.edit(slot, mask) if with_mask else (stage.run(slot), None)
        return slot, mask


def _slot_work(slot: Slot) -> int:
    return slot.task_vectors.numel() + slot.pretrained.numel()


class _Turns:
    """Lets units read layer inputs in the order of layers: exemplars go through the network once, block by block."""

    def __init__(self) -> None:
        self._next, self._left, self._changed = 0, set[int](), Condition()

    def wait(self, place: int, check: Callable[[], None]) -> None:
        """Wait until all before this place have read theirs, or need none; ``check`` may raise Cancelled meanwhile."""
        with self._changed:
            while self._next < place:
                self._changed.wait(WAKE)
                check()

    def leave(self, place: int) -> None:
        """Let the next one read."""
        with self._changed:
            self._left.add(place)
            while self._next in self._left:
                self._left.remove(self._next)
                self._next += 1
            self._changed.notify_all()
