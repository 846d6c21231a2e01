"""Pieces of a tensor to read: all of its numbers, or short runs spread evenly over it.

A tensor of more than ``MAX_WHOLE_NUMEL`` numbers is divided into ``RUN_COUNT`` equal parts, and one run of
``RUN_LENGTH`` neighboring numbers is read at a random position of each part. Random positions have no period in common
with the rows of a matrix, and runs are cheap to read. The positions depend only on the tensor's name and size, so the
same numbers are read from every model.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from merging.models.checkpoint import Checkpoint, Spans
from merging.models.tower_names import VISUAL

RUN_COUNT, RUN_LENGTH = 8, 64
MAX_WHOLE_NUMEL = 2 * RUN_COUNT * RUN_LENGTH  # largest number of scalars in a tensor that is read whole
PIECE_NUMEL = 1 << 20  # numbers read at a time if a tensor is read whole


@dataclass(frozen=True, slots=True)
class Piece:
    """Numbers of a tensor that are read together: one span, or the runs of a sample."""

    spans: Spans
    weight: float = 1.0  # how many numbers of the tensor each number that is read represents

    @property
    def numel(self) -> int:
        """How many numbers are read."""
        return sum(stop - start for start, stop in self.spans)

    @property
    def sampled(self) -> bool:
        """Whether these are the runs of a sample."""
        return self.weight > 1

    def read(self, checkpoint: Checkpoint, name: str) -> Tensor:
        """The numbers, flat (numel,), in the stored dtype, on the CPU."""
        return checkpoint.read_spans(name, self.spans).cpu()

    def finite(self, checkpoint: Checkpoint, name: str) -> Tensor:
        """The numbers, flat (numel,), in float64, with 0 for those that are not finite."""
        return self.read(checkpoint, name).double().nan_to_num(0.0, 0.0, 0.0)

    def position(self, index: int) -> int:
        """The position in the flat tensor of number ``index`` of the piece."""
        for start, stop in self.spans:
            if index < stop - start:
                return start + index
            index -= stop - start
        raise IndexError(index)


class SampledCheckpoint(Checkpoint):
    """A checkpoint whose samples are cached in memory, so that they are read once."""

    def __init__(self, inner: Checkpoint) -> None:
        self.name, self.label, self.metadata, self.infos = inner.name, inner.label, inner.metadata, inner.infos
        self._inner, self._samples = inner, dict[str, Tensor]()

    def read_flat(self, name: str, start: int, stop: int) -> Tensor:
        """Scalars [start, stop) of a tensor, flat (n,): n = stop - start."""
        return self._inner.read_flat(name, start, stop)

    def read_spans(self, name: str, spans: Spans) -> Tensor:
        """The scalars in the spans of a tensor, flat (n,); those of a sample are read once."""
        if len(spans) == 1 and self.infos[name].numel > MAX_WHOLE_NUMEL:  # not a sample
            return self._inner.read_spans(name, spans)
        if name not in self._samples:
            self._samples[name] = self._inner.read_spans(name, spans)
        return self._samples[name]


def tensor_pieces(name: str, numel: int, sampled: bool) -> Iterator[Piece]:
    """The pieces of a tensor to read: a sample of it, or all of it. The sample ignores a visual tower's prefix."""
    if sampled and numel > MAX_WHOLE_NUMEL:
        yield _make_sample(name.removeprefix(VISUAL), numel)
        return
    for start in range(0, numel, PIECE_NUMEL):
        yield Piece(((start, min(start + PIECE_NUMEL, numel)),))


@lru_cache(maxsize=4096)
def _make_sample(name: str, numel: int) -> Piece:
    """One run in each part of a tensor, in order."""
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode(errors="replace")))
    positions = torch.rand(RUN_COUNT, generator=generator, dtype=torch.float64).tolist()  # within each part
    length = numel / RUN_COUNT
    starts = [int(index * length + position * (length - RUN_LENGTH)) for index, position in enumerate(positions)]
    return Piece(tuple((start, start + RUN_LENGTH) for start in starts), numel / (RUN_COUNT * RUN_LENGTH))
