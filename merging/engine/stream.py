"""Checkpoints as a stream of slots: one tensor of every expert, or one piece of it.

Pieces come in blocks, runs of adjacent scalars of one tensor that are read at once.
"""

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

from merging.base.parallel import POLL_SECONDS, Report, Unit, map_in_threads, prefetch, run_units
from merging.base.progress import Meter
from merging.base.threads import ONE_THREAD, limit_to_one_thread, parallel_pieces, piece_memory
from merging.engine.layer_inputs import OnDetail, ignore_detail
from merging.engine.outputs import Notes
from merging.engine.run_inputs import RunInputs, Spans
from merging.methods.method import Edit, Merge
from merging.methods.moments import Moments
from merging.methods.params import Params
from merging.methods.slot import ResultBeforeCount, Slot
from merging.models.families import Parameter

T = TypeVar("T")

EXEMPLARS_PHASE = "Running exemplars"  # as the progress report shows it

Note = tuple[str, Slot, dict[str, Any]]  # (table, slot of the tensor, columns)


@dataclass(frozen=True)
class Stage:
    """One step of a chain, with its survey's statistics."""

    method: Edit | Merge
    params: Params
    statistics: Any = None

    @property
    def is_elementwise(self) -> bool:
        """Whether the step may process every tensor in pieces."""
        return self.method.is_elementwise(self.params)

    def is_elementwise_on(self, parameter: Parameter) -> bool:
        """Whether the step may process this tensor in pieces."""
        return self.method.elementwise(self.params, parameter)

    @property
    def after_merge(self) -> bool:
        """Whether the step edits the merged task vector."""
        return isinstance(self.method, Edit) and self.method.after_merge(self.params)

    def drops(self, parameter: Parameter) -> bool:
        """Whether the step zeroes a tensor for every expert."""
        return isinstance(self.method, Edit) and self.method.drops(parameter, self.statistics)

    def edit(self, slot: Slot, mask: Tensor | None) -> tuple[Slot, Tensor | None]:
        """A slot after this edit, and the mask (*S) of the scalars that ``mask`` and this edit keep (None: all)."""
        assert isinstance(self.method, Edit)
        kept = self.method.kept(slot, self.params, self.statistics)
        mask = kept if mask is None else mask if kept is None else mask & kept
        return self.run(slot), mask

    def run(self, slot: Slot) -> Slot:
        """A slot after this step."""
        return slot.with_task_vectors(self.method.run(slot, self.params, self.statistics))

    def run_before_count(self, slot: Slot) -> ResultBeforeCount:
        """The result of a slot while the merge still counts."""
        assert isinstance(self.method, Merge) and self.method.run_before_count is not None
        return self.method.run_before_count(slot, self.params, self.statistics)

    def with_count(self, count: Tensor | int) -> Stage:
        """This merge with its count over all slots, a scalar."""
        return replace(self, statistics=self.statistics.with_votes(int(torch.as_tensor(count).cpu())))


@dataclass(frozen=True)
class Stream:
    """The slots as ``stages`` leave them; each iteration reads the files again."""

    inputs: RunInputs
    stages: tuple[Stage, ...]
    in_pieces: bool
    meter: Meter
    phase: str
    notes: Notes | None = None
    spans: Spans | None = None  # the pieces that ``map`` and ``masked_map`` process; None: all
    # Whether a tensor is processed in pieces although the stream has whole tensors.
    cut: Callable[[Parameter], bool] = lambda parameter: False

    @property
    def experts(self) -> tuple[str, ...]:
        """Names of the experts, in order."""
        return self.inputs.names

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The merged tensors, in forward order."""
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
        for stream in self._split():
            yield from stream._slots()

    def _split(self) -> list[Stream]:
        """This stream, split where tensors in pieces and whole tensors follow each other."""
        runs = [
            (cut, {p.name for p in group}) for cut, group in itertools.groupby(self.inputs.in_capture_order, self.cut)
        ]
        if self.in_pieces or not any(cut for cut, _ in runs):
            return [self]
        return [
            replace(self, inputs=replace(self.inputs, subset=frozenset(names)), in_pieces=cut) for cut, names in runs
        ]

    def _slots(self) -> Iterator[Slot]:
        """The slots after the edits, in pieces or whole."""
        if self.in_pieces:
            yield from self._map_pieces(lambda slot: self._edit_slot(slot)[0])
            return
        # Whole tensors also run on one thread, so that the result's bytes do not depend on the number of cores.
        whole_slots = self.inputs.slots(in_blocks=False, is_dropped=self._drops)
        with limit_to_one_thread(self.inputs.device), prefetch(whole_slots) as slots:
            for slot in slots:
                yield self._edit_slot(self._connect_lone_slot(slot))[0]
                self.meter.advance(_slot_work(slot), self.phase, slot.name)

    def sample_slots(self, stride: int) -> Iterator[Slot]:
        """A sample of each expert's scalars, one in ``stride``, as flat slots with a meaningless ``start``.

        The sample takes every ``stride``-th scalar, counted over all tensors, or about as many of parts of them. If
        pieces are edited first, it takes one in ``stride`` runs of adjacent scalars instead, because edits may depend
        on a scalar's position; only these runs are edited.
        """
        if self.in_pieces:
            workers = parallel_pieces(self.inputs.device)  # ONE_THREAD: in each worker, torch computes with one thread
            reads = self._list_edited_runs(stride) if self.stages else self.inputs.sample_blocks(stride)
            with limit_to_one_thread(), map_in_threads(reads, workers, workers + 1, ONE_THREAD) as slots:
                for slot, scalars in slots:
                    yield slot
                    self.meter.advance((len(self.experts) + 1) * scalars, self.phase, slot.name)
            return
        scalars_before = 0
        for slot in self:
            first, vectors = -scalars_before % stride, slot.task_vectors.flatten(1)
            scalars_before += vectors.shape[1]
            gradients = {kind: values.flatten(1)[:, first::stride] for kind, values in slot.gradients.items()}
            sample = slot.pretrained.flatten()[first::stride]
            yield replace(slot, pretrained=sample, task_vectors=vectors[:, first::stride], gradients=gradients)

    def _list_edited_runs(self, stride: int) -> Iterator[Callable[[], tuple[Slot, int]]]:
        """Callables that read and edit one run of a sample each; they return it with the scalars that it represents."""
        reads = self.inputs.sample_runs(self._drops, stride)
        scalars = sum(self.inputs.pretrained.infos[p.name].numel for p in self.inputs.in_capture_order)
        bounds = [scalars * position // len(reads) for position in range(len(reads) + 1)]
        for read, (start, stop) in zip(reads, itertools.pairwise(bounds), strict=True):
            yield partial(self._read_edited_run, read, stop - start)

    def _read_edited_run(self, read: Callable[[], Slot], scalars: int) -> tuple[Slot, int]:
        return self._edit_slot(read())[0], scalars

    def map(self, work: Callable[[Slot], T]) -> Iterator[T]:
        """The results of ``work`` on every slot, in the slots' order; several slots are processed at once."""
        return self._map_slots(lambda slot, _: work(self._edit_slot(slot)[0]))

    def masked_map(self, work: Callable[[Slot, Tensor | None, OnDetail], T]) -> Iterator[T]:
        """As ``map``, with each slot's mask (*S): False where an edit decided that the pretrained value stays.

        The mask is None if all scalars are kept. The third argument of ``work`` is a function that reports the current
        detail and may raise Cancelled.
        """
        return self._map_slots(lambda slot, on_detail: work(*self._edit_slot(slot, with_mask=True), on_detail))

    def _map_slots(self, work: Callable[[Slot, OnDetail], T]) -> Iterator[T]:
        """The results of ``work`` on every slot before the edits, in the slots' order."""
        for stream in self._split():
            if stream.in_pieces:
                yield from stream._map_pieces(lambda slot: work(slot, ignore_detail))
            else:
                yield from stream._map_layers(work)

    def _map_pieces(self, work: Callable[[Slot], T]) -> Iterator[T]:
        """The results of ``work`` on every piece before the edits, in the pieces' order.

        When the caller takes the next result, the piece of the current one is reported as done. Every thread reads a
        block and processes its pieces one after the other. If all threads shared a piece, they would wait for each
        other, and the bytes of a result would depend on their number. If only one thread computes, another one reads
        the next block ahead.
        """
        workers = parallel_pieces(self.inputs.device)
        with limit_to_one_thread():
            if workers == 1:
                with prefetch(self.inputs.slots(in_blocks=True, is_dropped=self._drops, spans=self.spans)) as blocks:
                    for block in blocks:
                        yield from self._report_results((slot, work(slot)) for slot in self.inputs.split_block(block))
                return
            block_count = workers + 1  # one block is done, and the caller takes its results
            tasks = (
                partial(self._work_on_block, read, work)
                for read in self.inputs.blocks(self._drops, block_count, self.spans)
            )
            with map_in_threads(tasks, workers, block_count, ONE_THREAD) as blocks:
                for results in blocks:
                    yield from self._report_results(results)

    def _work_on_block(self, read: Callable[[], Slot], work: Callable[[Slot], T]) -> list[tuple[Slot, T]]:
        """Every piece of a block before the edits, with its result."""
        return [(slot, work(slot)) for slot in self.inputs.split_block(read())]

    def _report_results(self, results: Iterable[tuple[Slot, T]]) -> Iterator[T]:
        for slot, result in results:
            yield result
            self.meter.advance(_slot_work(slot), self.phase, slot.name)

    def _connect_lone_slot(self, slot: Slot) -> Slot:
        """The slot of a whole tensor that is processed alone, connected to this stream."""
        # Only for its reports: nothing runs, and no memory is planned.
        unit = Unit[None](slot.name, _slot_work(slot), nbytes=0, result_bytes=0, run=lambda _: None)
        return self._connect_slot(slot, partial(self._report, unit), _Turns(), 0, [])

    def _map_layers(self, work: Callable[[Slot, OnDetail], T]) -> Iterator[T]:
        """The results of ``work`` on whole tensors, each a unit of work, in the tensors' order.

        On the CPU every unit has one thread, and as many units run at once as torch may use threads. All cores are then
        busy, and the bytes of a result do not depend on the number of cores.
        """
        workers = parallel_pieces(self.inputs.device)
        with ExitStack() as stack:
            stack.enter_context(limit_to_one_thread(self.inputs.device))
            if workers > 1:
                units = self._make_units(
                    work, lambda parameter: self.inputs.read_whole(parameter, self._drops(parameter))
                )
                parallel_results = run_units(units, workers, piece_memory(), self._report_to_meter, ONE_THREAD)
                results: Iterator[tuple[T, list[Note]]] = stack.enter_context(closing(parallel_results))
            else:
                slots = stack.enter_context(prefetch(self.inputs.slots(in_blocks=False, is_dropped=self._drops)))
                units = self._make_units(work, lambda _: next(slots))
                results = (unit.run(partial(self._report, unit)) for unit in units)
            for parameter, (result, notes) in zip(self.inputs.in_capture_order, results, strict=True):
                if self.notes is not None:
                    for table, slot, row in notes:
                        self.notes.add(table, slot, row)
                yield result
                self.meter.advance(self._count_scalars(parameter), self.phase, parameter.name)

    def _make_units(
        self, work: Callable[[Slot, OnDetail], T], read: Callable[[Parameter], Slot]
    ) -> Iterator[Unit[tuple[T, list[Note]]]]:
        """A unit of work per tensor: its name, its cost, and the call that computes it."""
        turns = _Turns()
        for position, parameter in enumerate(self.inputs.in_capture_order):
            scalars, nbytes = self._count_scalars(parameter), self.inputs.layer_bytes(parameter)
            run = partial(self._run_unit, work, read, parameter, turns, position)
            # If inputs pass through merged layers, the earlier sections must be merged before a section starts.
            group = parameter.section if self.inputs.merged_inputs is not None else None
            result_bytes = scalars * self.inputs.dtype.itemsize
            yield Unit(parameter.name, scalars, nbytes, result_bytes, run, group)

    def _run_unit(
        self,
        work: Callable[[Slot, OnDetail], T],
        read: Callable[[Parameter], Slot],
        parameter: Parameter,
        turns: _Turns,
        position: int,
        report: Report,
    ) -> tuple[T, list[Note]]:
        """The result of one tensor, and the notes of its methods."""
        notes: list[Note] = []
        try:
            slot = self._connect_slot(read(parameter), report, turns, position, notes)
            return work(slot, partial(report, None)), notes
        finally:
            turns.finish(position)

    def _connect_slot(self, slot: Slot, report: Report, turns: _Turns, position: int, notes: list[Note]) -> Slot:
        """The slot of a whole tensor, with ``report_share``, ``note`` and its inputs connected to this stream.

        ``report`` takes the share that is done (None: no change) and a detail; with neither it checks for cancellation.
        """
        cached: list[tuple[Moments, ...] | None] = []  # the inputs, once they are read

        def read_inputs() -> tuple[Moments, ...] | None:
            if self.inputs.input_source is not None and not cached:
                turns.wait(position, partial(report, None, ""))
                cached.append(self.inputs.input_moments(slot.parameter, partial(report, None)))
                turns.finish(position)
            return cached[0] if cached else None

        def note(table: str, **row: Any) -> None:
            notes.append((table, slot, row))

        return replace(slot, read_inputs=read_inputs, report_share=lambda share: report(share, ""), note=note)

    def _report(self, unit: Unit[Any], share: float | None, detail: str = "") -> None:
        """Report the progress of a unit that runs alone."""
        self._report_to_meter(round((share or 0.0) * unit.work), detail, unit.name)

    def _report_to_meter(self, done: int, detail: str, name: str) -> None:
        """Show ``done`` of the current work without counting it; if ``name`` is empty, only check for cancellation."""
        if name:
            self.meter.report_part(done, EXEMPLARS_PHASE if detail else self.phase, detail or name)
        else:
            self.meter.check()

    def _count_scalars(self, parameter: Parameter) -> int:
        """The scalars of a tensor in all models."""
        return (len(self.experts) + 1) * self.inputs.pretrained.infos[parameter.name].numel

    def _drops(self, parameter: Parameter) -> bool:
        """Whether any stage zeroes a tensor for every expert."""
        return any(stage.drops(parameter) for stage in self.stages)

    def _edit_slot(self, slot: Slot, with_mask: bool = False) -> tuple[Slot, Tensor | None]:
        """A slot after the edits, and (if ``with_mask``) the mask (*S) of the scalars that they keep (None: all)."""
        mask = None
        for stage in self.stages:
            slot, mask = stage.edit(slot, mask) if with_mask else (stage.run(slot), None)
        return slot, mask


def _slot_work(slot: Slot) -> int:
    """The scalars of a slot in all models."""
    return slot.task_vectors.numel() + slot.pretrained.numel()


class _Turns:
    """Lets units read layer inputs in the order of layers: exemplars pass through the network once, block by block."""

    def __init__(self) -> None:
        self._next, self._changed = 0, Condition()  # the position whose turn it is; wakes those that wait
        self._finished_later = set[int]()  # positions after it that have finished already

    def wait(self, position: int, check: Callable[[], None]) -> None:
        """Wait until all units before this position have read their inputs, or need none.

        ``check`` is called while waiting and may raise Cancelled.
        """
        with self._changed:
            while self._next < position:
                self._changed.wait(POLL_SECONDS)
                check()

    def finish(self, position: int) -> None:
        """End this position's turn, so that the next unit may read."""
        with self._changed:
            self._finished_later.add(position)
            while self._next in self._finished_later:
                self._finished_later.remove(self._next)
                self._next += 1
            self._changed.notify_all()
