"""Shape and dtype of a stored tensor, and its raw bytes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch

from merging.errors import CheckpointError

MAX_TENSORS = 50_000
MAX_DIMENSIONS = 16
DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Shape and dtype of a tensor, known without reading it."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def numel(self) -> int:
        """Number of scalars."""
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def nbytes(self) -> int:
        """Bytes of the raw data."""
        return self.numel * self.dtype.itemsize


def raw_bytes(flat: torch.Tensor) -> memoryview:
    """The bytes of a flat, contiguous CPU tensor, without a copy."""
    array: Any = flat.view(torch.uint8).numpy()
    return memoryview(array)


def read_span(descriptor: int, offset: int, numel: int, dtype: torch.dtype, label: str) -> torch.Tensor:
    """``numel`` scalars starting at byte ``offset``: a new flat tensor (numel,)."""
    raw = torch.empty(numel * dtype.itemsize, dtype=torch.uint8)
    view, done = raw_bytes(raw), 0
    while done < len(view):
        got = os.preadv(descriptor, [view[done:]], offset + done)
        if got == 0:
            raise CheckpointError(f"{label} became shorter while it was being read; was it replaced?")
        done += got
    return raw.view(dtype)
