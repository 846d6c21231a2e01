"""The checkpoints of one run, read tensor by tensor or in blocks.

A block here is a run of adjacent scalars of one tensor, for every model; it is read at once and processed in pieces. An
edit may drop tensors: it sets their task vectors to zero for every expert.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Protocol

import torch
from torch import Tensor

from merging.base.devices import describe_device, is_host, limit_bytes, move_tensor
from merging.base.errors import CheckpointError, MergingError
from merging.base.numerics.finite import all_finite
from merging.base.numerics.linear_algebra import DEVICES_WITHOUT_FLOAT64
from merging.base.numerics.low_rank import LowRank, ThinFactor
from merging.engine.layer_inputs import LayerInputSource, OnDetail, ignore_detail
from merging.engine.merged_inputs import MergedInputs
from merging.methods.moments import Moments
from merging.methods.slot import Gradients, Slot
from merging.models.checkpoint import Checkpoint, UnusedText
from merging.models.families import LINEAR_MAPS, OUTPUT, UNMERGED, Parameter, Role
from merging.models.inspection.fit_check import check_fit
from merging.models.tensor_info import TensorInfo

BLOCK_CPU = 1 << 18  # scalars per expert that are read at a time
BLOCK_GPU = 1 << 24  # the same on a device with much memory
BLOCK_COPIES = 8  # stacks of blocks in a device's memory at once: three buffers, and temporaries of formulas
TASK_VECTOR_COPIES = 4  # stacks of task vectors in memory at once: the one read, an edited one, two inside a formula
DECOMPOSITION_MATRICES = 4  # float64 matrices (side, side) that the decomposition of a layer holds in memory
MAX_THRESHOLD_BYTES = 31 << 20  # the largest allocation whose release raises glibc's threshold for reusing memory
PIECE_CPU = 1 << 17  # scalars per expert that are processed at a time; with fewer, threads wait for the interpreter
STACK_CPU = 1 << 20  # the same of all experts together, which bounds the memory of a merge of many
MAX_RUN_LENGTH = 1 << 10  # adjacent scalars in a run of a sample
MIN_STRIDE = 60  # between the scalars of a sample in a block, of which only a part is read if that suffices
MIN_RUNS = 256  # in a sample of a large model; runs of small models are shorter

Spans = Mapping[str, Sequence[tuple[int, int]]]  # {tensor: [start, stop) of flat pieces}


def layer_bytes(
    parameter: Parameter,
    info: TensorInfo,
    experts: int,
    itemsize: int,
    decomposes: bool = True,
    rows: float = 0,
    ranks: float = math.inf,
) -> int:
    """Bytes that the work on one whole tensor may take: task vectors, a decomposition, and layer inputs.

    ``rows`` layer inputs per expert are in memory, or their Gram matrix if that is smaller. ``ranks`` is
    the sum of the ranks of all task vectors: if it is small, thin factors are decomposed in place of the task vectors.
    """
    height, width = (info.shape[0], info.numel // max(info.shape[0], 1)) if len(info.shape) > 1 else (0, 0)
    height, width = (width, height) if parameter.transposed else (height, width)
    side = max(height, width) if parameter.role in LINEAR_MAPS else min(height, width)
    matrix = (height + width) * ranks if ranks < min(height, width) else side**2
    decomposition_bytes = int(DECOMPOSITION_MATRICES * matrix * torch.float64.itemsize) if decomposes else 0
    inputs = width * min(rows * torch.float32.itemsize, width * torch.float64.itemsize)
    return TASK_VECTOR_COPIES * (experts + 1) * info.numel * itemsize + decomposition_bytes + int(experts * inputs)


def sum_of_ranks(parameter: Parameter, pretrained: Checkpoint, experts: Mapping[str, Checkpoint]) -> float:
    """The sum of the ranks of all task vectors' thin factors; infinity if an expert's task vector has none."""
    factors = find_thin_factors(parameter, pretrained, experts)
    return math.inf if factors is None else sum(factor.rank for factor in factors)


def find_thin_factors(
    parameter: Parameter, pretrained: Checkpoint, experts: Mapping[str, Checkpoint]
) -> list[ThinFactor] | None:
    """Every expert's task vector of a matrix as thin factors; None if an expert has none."""
    if parameter.role != Role.LINEAR:
        return None
    factors = [expert.thin_factors(parameter.name, pretrained) for expert in experts.values()]
    known_factors = [factor for factor in factors if factor is not None]
    return known_factors if len(known_factors) == len(experts) else None


class GradientReader(Protocol):
    """One statistic of every expert's gradients, read in pieces."""

    def read(self, name: str, start: int, stop: int) -> Tensor:
        """Scalars [start, stop) of a tensor, (K, stop - start)."""
        ...


@dataclass(frozen=True)
class RunInputs:
    """The checkpoints of one run and the ways to read them."""

    pretrained: Checkpoint
    experts: Mapping[str, Checkpoint]
    input_source: LayerInputSource | None
    device: torch.device
    dead: UnusedText = field(default_factory=UnusedText)  # unused text, which global quantiles count in addition
    gradients: Mapping[Gradients, GradientReader] = field(default_factory=dict)  # the statistics that the chain needs
    subset: frozenset[str] | None = None  # the tensors that are streamed; None: all
    merged_inputs: MergedInputs | None = None  # layer inputs that pass through the layers merged before
    parameters: tuple[Parameter, ...] = field(init=False)  # the merged tensors, in forward order
    dtype: torch.dtype = field(init=False)
    _free_buffers: list[list[Tensor]] = field(init=False, default_factory=list, repr=False)  # of finished passes

    def __post_init__(self) -> None:
        merged = tuple(p for p in self.pretrained.parameters if p.role not in UNMERGED)
        has_doubles = any(self.pretrained.infos[p.name].dtype == torch.float64 for p in merged)
        if has_doubles and self.device.type in DEVICES_WITHOUT_FLOAT64:
            name = describe_device(self.device)
            raise MergingError(
                f"These checkpoints hold float64, which {name} cannot compute with; use the device 'cpu'."
            )
        # glibc reuses freed memory only for allocations up to the size of the largest one freed so far. Without this
        # allocation, which is freed at once, the kernel would clear the pages of every piece again.
        torch.empty(MAX_THRESHOLD_BYTES, dtype=torch.uint8)
        object.__setattr__(self, "parameters", merged)
        object.__setattr__(self, "dtype", torch.float64 if has_doubles else torch.float32)

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
        """Scalars that one pass over all merged tensors reads."""
        return sum(self.numels) * (len(self.experts) + 1)

    @cached_property
    def _block_size(self) -> int:
        """Scalars per expert that are read at a time."""
        if is_host(self.device):
            return BLOCK_CPU
        scalar_bytes = BLOCK_COPIES * (len(self.experts) + 1) * self.dtype.itemsize
        return max(PIECE_CPU, limit_bytes(self.device, BLOCK_GPU * scalar_bytes) // scalar_bytes)

    @property
    def in_capture_order(self) -> list[Parameter]:
        """The streamed tensors, in the order in which layer inputs are captured."""
        # open_clip registers the output projection first, but inputs are captured layer by layer.
        streamed = (p for p in self.parameters if self.subset is None or p.name in self.subset)
        return sorted(streamed, key=lambda p: p.section == OUTPUT)

    def slots(
        self, in_blocks: bool, is_dropped: Callable[[Parameter], bool], spans: Spans | None = None
    ) -> Iterator[Slot]:
        """Every slot, whole or in flat blocks; of dropped tensors only the pretrained weights are read."""
        if in_blocks:
            # One block is in use, one is being read, one is free.
            yield from (read() for read in self.blocks(is_dropped, 3, spans))
        else:
            yield from (self.read_whole(parameter, is_dropped(parameter)) for parameter in self.in_capture_order)

    def blocks(
        self, is_dropped: Callable[[Parameter], bool], buffer_count: int, spans: Spans | None = None
    ) -> Iterator[Callable[[], Slot]]:
        """Callables that read one flat block each, of all tensors or of ``spans``.

        A block is valid until ``buffer_count`` more blocks are read, since blocks take turns in as many buffers: fresh
        memory for every block would cost more time in page faults than the arithmetic takes. The buffers stay for the
        next pass, because the allocator stops returning memory to the system once such large blocks are freed.
        """
        size = self._block_size
        buffers = self._free_buffers.pop() if self._free_buffers else []
        try:
            buffers.extend(self._allocate(size) for _ in range(buffer_count - len(buffers)))
            next_buffers = itertools.cycle(buffers[:buffer_count])
            for parameter in self.in_capture_order:
                numel, dropped = self.pretrained.infos[parameter.name].numel, is_dropped(parameter)
                # A tensor without scalars is one empty block.
                all_spans = ((start, min(start + size, numel)) for start in range(0, max(numel, 1), size))
                for start, stop in all_spans if spans is None else spans.get(parameter.name, ()):
                    yield partial(self._read_slot, parameter, start, stop, dropped, next(next_buffers))
        finally:
            self._free_buffers.append(buffers)

    def sample_runs(self, is_dropped: Callable[[Parameter], bool], stride: int) -> list[Callable[[], Slot]]:
        """Callables that read one in ``stride`` runs of adjacent scalars, counted over all tensors, as flat slots."""
        sizes = [self.pretrained.infos[parameter.name].numel for parameter in self.in_capture_order]
        length = max(1, min(MAX_RUN_LENGTH, sum(sizes) // (stride * MIN_RUNS)))
        reads, scalars_before = list[Callable[[], Slot]](), 0
        for parameter, numel in zip(self.in_capture_order, sizes, strict=True):
            first = -scalars_before % (stride * length)  # the sample continues across tensors
            for start in range(first, numel, stride * length):
                stop = min(start + length, numel)
                reads.append(partial(self._read_slot, parameter, start, stop, is_dropped(parameter), None))
            scalars_before += numel
        return reads

    def sample_blocks(self, stride: int) -> Iterator[Callable[[], tuple[Slot, int]]]:
        """Callables that read every ``stride``-th scalar, counted over all tensors, block by block.

        With a long stride, only the first part of every full block is read, and more densely; the sample then has about
        one scalar in ``stride``. Each returns a flat slot and the number of scalars per expert in the block.
        """
        scalars_before, size = 0, self._block_size
        parts = max(1, stride // MIN_STRIDE)
        for parameter in self.in_capture_order:
            numel = self.pretrained.infos[parameter.name].numel
            for start in range(0, numel, size):
                count = min(size, numel - start)
                part = parts if count == size else 1
                sampled = slice(-scalars_before % (stride // part), count // part, stride // part)
                yield partial(self._read_sample, parameter, start, count, sampled)
                scalars_before += count

    def _read_sample(self, parameter: Parameter, start: int, count: int, sampled: slice) -> tuple[Slot, int]:
        """The scalars ``sampled`` of a block as a flat slot, and the ``count`` of scalars per expert in the block."""
        checkpoints, stop = (self.pretrained, *self.experts.values()), start + sampled.stop
        samples = (checkpoint.read_flat(parameter.name, start, stop)[sampled] for checkpoint in checkpoints)
        base, *rows = (move_tensor(values, self.device, self.dtype) for values in samples)
        gradients = {kind: file.read(parameter.name, start, stop)[:, sampled] for kind, file in self.gradients.items()}
        return Slot(parameter, self.names, base, torch.stack(rows) - base, start, gradients=gradients), count

    def is_large(self, parameter: Parameter) -> bool:
        """Whether a tensor of a network other than CLIP exceeds one block, as a table of tokens may."""
        return self.pretrained.is_inferred and self.pretrained.infos[parameter.name].numel > self._block_size

    def layer_bytes(self, parameter: Parameter) -> int:
        """Bytes that the work on one whole tensor may take."""
        rows = 0 if self.input_source is None and self.merged_inputs is None else math.inf
        info = self.pretrained.infos[parameter.name]
        return layer_bytes(parameter, info, len(self.experts), self.dtype.itemsize, rows=rows)

    def read_whole(self, parameter: Parameter, dropped: bool = False) -> Slot:
        """One tensor as a slot in memory of its own; a matrix is (d_out, d_in) even if it is stored transposed."""
        shape = self.pretrained.infos[parameter.name].shape
        slot = self._read_slot(parameter, 0, self.pretrained.infos[parameter.name].numel, dropped, None)
        transposed = parameter.transposed and len(shape) == 2

        def reshape(values: Tensor, *leading: int) -> Tensor:
            whole = values.reshape(*leading, *shape)
            return whole.mT.contiguous() if transposed else whole

        return replace(
            slot,
            pretrained=reshape(slot.pretrained),
            task_vectors=reshape(slot.task_vectors, len(self.experts)),
            read_inputs=partial(self.input_moments, parameter),
            gradients={kind: reshape(rows, len(self.experts)) for kind, rows in slot.gradients.items()},
            factors=None if dropped else self._read_factors(parameter),
        )

    def _read_factors(self, parameter: Parameter) -> tuple[LowRank, ...] | None:
        """Thin factors of every expert's task vector (d_out, d_in); None if an expert has none."""
        thin_factors = find_thin_factors(parameter, self.pretrained, self.experts)
        if thin_factors is None:
            return None
        factors = (factor.read().to(self.device) for factor in thin_factors)
        return tuple(factor.mT if parameter.transposed else factor for factor in factors)

    def input_moments(self, parameter: Parameter, on_detail: OnDetail = ignore_detail) -> tuple[Moments, ...] | None:
        """The moments of the rows that enter a tensor, one per expert; None if no rows are known."""
        return self.input_source.moments(parameter, on_detail) if self.input_source is not None else None

    def split_block(self, block: Slot) -> Iterator[Slot]:
        """Views of a flat block, in smaller pieces on the CPU."""
        size, numel = block.pretrained.numel(), block.pretrained.numel()
        if is_host(self.device):
            size = min(PIECE_CPU, STACK_CPU // len(self.experts))
        for start in range(0, max(numel, 1), max(size, 1)):
            piece = slice(start, start + size)
            base, vectors = block.pretrained[piece], block.task_vectors[:, piece]
            gradients = {kind: rows[:, piece] for kind, rows in block.gradients.items()}
            yield Slot(block.parameter, block.experts, base, vectors, block.start + start, gradients=gradients)

    def _allocate(self, numel: int) -> Tensor:
        """Uninitialized memory (K, numel) for task vectors."""
        return torch.empty((len(self.experts), numel), dtype=self.dtype, device=self.device)

    def _read_slot(self, parameter: Parameter, start: int, stop: int, dropped: bool, buffer: Tensor | None) -> Slot:
        """The flat slot [start, stop) of a tensor, in ``buffer`` or new memory; task vectors are 0 if it is dropped."""
        name = parameter.name
        base = self._read(self.pretrained, name, start, stop)
        gradients = {kind: file.read(name, start, stop) for kind, file in self.gradients.items()}
        if dropped:
            zeros = torch.zeros(1, dtype=self.dtype, device=self.device).expand(len(self.experts), stop - start)
            return Slot(parameter, self.names, base, zeros, start, gradients=gradients)
        vectors = (self._allocate(stop - start) if buffer is None else buffer)[:, : stop - start]
        for row, expert in zip(vectors, self.experts.values(), strict=True):
            torch.sub(self._read(expert, name, start, stop), base, out=row)
        if not all_finite(vectors):
            self._raise_not_finite(name)
        return Slot(parameter, self.names, base, vectors, start, gradients=gradients)

    def _read(self, checkpoint: Checkpoint, name: str, start: int, stop: int) -> Tensor:
        return move_tensor(checkpoint.read_flat(name, start, stop), self.device, self.dtype)

    def _raise_not_finite(self, name: str) -> None:
        """Raise an error that names every tensor with NaN or infinity in all files, not only this one."""
        check_fit(self.pretrained, self.experts, values=True).raise_if_unfit()  # reads all values
        raise CheckpointError(
            f"The difference between an expert and the pretrained model overflows in tensor {name!r}, although all its "
            "numbers are finite. Are these checkpoints of one family?"
        )
