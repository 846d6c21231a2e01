"""Shape and dtype of a stored tensor, and its raw bytes."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from merging.base.errors import CheckpointError

MAX_TENSORS = 50_000
MAX_DIMENSIONS = 16


class DtypeNames(NamedTuple):
    """The names of a dtype in files: in a safetensors header, and as torch's storage class in a pickle."""

    safetensors: str
    storage: str


DTYPE_NAMES = {  # every dtype that can be read and merged
    torch.float64: DtypeNames("F64", "DoubleStorage"),
    torch.float32: DtypeNames("F32", "FloatStorage"),
    torch.float16: DtypeNames("F16", "HalfStorage"),
    torch.bfloat16: DtypeNames("BF16", "BFloat16Storage"),
    torch.int64: DtypeNames("I64", "LongStorage"),
    torch.int32: DtypeNames("I32", "IntStorage"),
    torch.int16: DtypeNames("I16", "ShortStorage"),
    torch.int8: DtypeNames("I8", "CharStorage"),
    torch.uint8: DtypeNames("U8", "ByteStorage"),
    torch.bool: DtypeNames("BOOL", "BoolStorage"),
}
DTYPES = {names.safetensors: dtype for dtype, names in DTYPE_NAMES.items()}


def dtype_name(dtype: torch.dtype) -> str:
    """torch's name of a dtype, without the module: "float32"."""
    return str(dtype).removeprefix("torch.")


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Shape and dtype of a tensor, known without reading it."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def numel(self) -> int:
        """Number of scalars."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the raw data."""
        return self.numel * self.dtype.itemsize


def raw_bytes(flat: torch.Tensor) -> memoryview:
    """The bytes of a flat, contiguous CPU tensor (n,), without a copy."""
    array: Any = flat.view(torch.uint8).numpy()
    return memoryview(array)


def read_span(descriptor: int, offset: int, numel: int, dtype: torch.dtype, label: str) -> torch.Tensor:
    """``numel`` scalars starting at byte ``offset``: a new flat tensor (numel,)."""
    return read_spans(descriptor, offset, ((0, numel),), dtype, label)


def read_spans(
    descriptor: int, offset: int, spans: Iterable[tuple[int, int]], dtype: torch.dtype, label: str
) -> torch.Tensor:
    """The scalars in several spans [start, stop), counted from byte ``offset``: a new flat tensor (n,).

    Raises:
        CheckpointError: the file ends before a span does.
    """
    byte_spans = [(start * dtype.itemsize, stop * dtype.itemsize) for start, stop in spans]
    raw = torch.empty(sum(stop - start for start, stop in byte_spans), dtype=torch.uint8)
    view = raw_bytes(raw)
    for start, stop in byte_spans:
        target, view = view[: stop - start], view[stop - start :]
        while target:
            count = os.preadv(descriptor, [target], offset + stop - len(target))
            if count == 0:
                raise CheckpointError(f"{label} became shorter while it was being read; was it replaced?")
            target = target[count:]
    return raw.view(dtype)
