"""The safetensors format, read by offset and written in place: nothing is mapped, nothing is held in memory.

Mapped files would kill the whole server if somebody truncated them while they are open; reading by offset turns that
into an error about one file. The header is checked against the file's size before anything is allocated.
"""

from __future__ import annotations

import json
import os
import reprlib
import stat
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch

from merging.errors import CheckpointError, printable
from merging.json_file import parse

MAX_HEADER = 100_000_000
MAX_TENSORS = 50_000
MAX_DIMENSIONS = 16
AGAIN = "The file is damaged: download it again, or write it with safetensors."
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
OTHERS = {  # how well-known files begin that are no safetensors, in small letters
    b"version https://git-lfs": "it is a Git LFS pointer, not the file itself: run `git lfs pull`.",
    b"pk\x03\x04": "it is a zip archive (a torch checkpoint?), not safetensors.",
    b"\x89png": "it is a PNG image, not safetensors.",
    b"\xff\xd8\xff": "it is a JPEG image, not safetensors.",
    b"\x93numpy": "it is a NumPy array, not safetensors: write a state dict.",
    b"\x89hdf": "it is an HDF5 file (Keras?), not safetensors: write a state dict.",
    b"gguf": "it is a GGUF file, not safetensors: its numbers are mostly quantized.",
    b"%pdf": "it is a PDF document, not safetensors.",
    b"<!doctype": "it is a web page, not safetensors: download the file again.",
    b"<html": "it is a web page, not safetensors: download the file again.",
    b"<!--": "it is a web page, not safetensors: download the file again.",
    b"<?xml": "it is XML (a server's message?), not safetensors: download the file again.",
    b"\x1f\x8b": "it is compressed by gzip: unpack it.",
    b"\x80": "it is a Python pickle, not safetensors.",
}


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


@dataclass(frozen=True, slots=True)
class Header:
    """What a safetensors file promises: tensors, where each begins, string metadata."""

    infos: dict[str, TensorInfo]
    offsets: dict[str, int]
    metadata: dict[str, str]


def open_regular(path: Path) -> int:
    """A file descriptor of a regular file; pipes, folders and missing files are refused without waiting."""
    label = printable(path.name or str(path), 80)
    try:
        # Opened first and looked at through the descriptor: what is looked at is what is read. Pipes do not block.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        raise CheckpointError(f"{label}: not found.") from None
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL in it
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise CheckpointError(f"{label}: not found or not readable ({reason}).") from None
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        kind = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
        raise CheckpointError(f"{label} is {kind}; a file with weights is expected.")
    return descriptor


def file_state(descriptor: int) -> tuple[int, ...]:
    """What changes when an open file is written to."""
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def read_header(descriptor: int, label: str) -> Header:
    """The checked header of an open file.

    Raises:
        CheckpointError: not safetensors, truncated, trailing bytes, a tensor that overlaps, leaves a hole or lies.
    """
    size = os.fstat(descriptor).st_size
    if size == 0:
        raise CheckpointError(f"{label} is empty (0 bytes).")
    length = int.from_bytes(os.pread(descriptor, 8, 0), "little")
    if size < 8 or length > MAX_HEADER or length > size - 8:
        raise CheckpointError(f"{label}: {_what_else(descriptor, size, length)}")
    entries = parse(os.pread(descriptor, length, 8), label, "the header")
    metadata = entries.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise CheckpointError(f"{label}: the metadata is not a mapping of text to text. {AGAIN}")
    return _checked(entries, metadata, start=8 + length, size=size, label=label)


def _what_else(descriptor: int, size: int, length: int) -> str:
    """Which well-known thing a file is that is not safetensors."""
    start = os.pread(descriptor, 64, 0).lstrip().lower()
    if length > MAX_HEADER and os.pread(descriptor, 1, 8) == b"{":
        return f"its header is said to take {length:,} bytes, and at most {MAX_HEADER:,} are read; download it again."
    for magic, text in OTHERS.items():
        if start.startswith(magic):
            return text
    if 8 < length <= MAX_HEADER:
        return f"truncated: the header alone promises {length + 8} bytes, the file has {size}; download it again."
    return f"neither safetensors nor another checkpoint that is known (file size {size} bytes)."


def _checked(entries: dict[str, Any], metadata: dict[str, str], *, start: int, size: int, label: str) -> Header:
    if len(entries) > MAX_TENSORS:
        raise CheckpointError(f"{label} holds {len(entries):,} tensors; refused.")
    infos: dict[str, TensorInfo] = {}
    spans: list[tuple[int, int, str]] = []
    for name, entry in entries.items():
        infos[name], begin, end = _entry(name, entry, label)
        spans.append((begin, end, name))
    if not infos:
        raise CheckpointError(f"{label} holds no tensors.")
    expected = 0
    for begin, end, name in sorted(spans):
        if begin != expected:
            what = "overlaps the one before it" if begin < expected else "leaves a hole before it"
            raise CheckpointError(
                f"{label}: tensor {name[:80]!r} {what} (starts at {begin}, expected {expected}). {AGAIN}"
            )
        expected = end
    if start + expected > size:
        raise CheckpointError(
            f"{label}: truncated: the header promises {start + expected} bytes, the file has {size}; download it again."
        )
    if start + expected < size:
        extra = size - start - expected
        raise CheckpointError(f"{label}: {extra} bytes follow the last tensor; the file is damaged, download it again.")
    return Header(infos, {name: start + begin for begin, _, name in spans}, metadata)


def _entry(name: str, entry: Any, label: str) -> tuple[TensorInfo, int, int]:
    try:
        dtype_name, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        whole = isinstance(shape, list) and len(shape) <= MAX_DIMENSIONS and isinstance(dtype_name, str)
        whole = whole and all(type(v) is int and 0 <= v < 2**63 for v in (*shape, begin, end))
    except (TypeError, KeyError, ValueError):
        whole = False
    if not whole:
        raise CheckpointError(
            f"{label}: the header's entry of tensor {name[:80]!r} is malformed: a dtype, a shape and two offsets "
            f"of whole numbers are expected, {reprlib.repr(entry)} was found. {AGAIN}"
        )
    if dtype_name not in DTYPES:
        raise CheckpointError(
            f"{label}: tensor {name[:80]!r} has dtype {dtype_name[:20]!r}, which cannot be merged; convert it."
        )
    info = TensorInfo(tuple(shape), DTYPES[dtype_name])
    if end - begin != info.nbytes:
        raise CheckpointError(
            f"{label}: tensor {name[:80]!r} of shape {list(shape)} and dtype {dtype_name} needs {info.nbytes} bytes, "
            f"its offsets give {end - begin}. {AGAIN}"
        )
    return info, begin, end


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


class SafetensorsWriter:
    """Writes tensors of known shapes in any order, whole or in pieces; the file appears whole or not at all."""

    def __init__(self, path: Path, infos: Mapping[str, TensorInfo], metadata: Mapping[str, str] | None = None) -> None:
        self.path = path
        self._partial = path.with_name(f".tmp-{uuid.uuid4().hex}-{os.getpid()}")
        self._offsets: dict[str, int] = {}
        self._infos = dict(infos)
        header: dict[str, Any] = {"__metadata__": dict(sorted(metadata.items()))} if metadata else {}
        end = 0
        # Widest dtypes first, then by name, as the reference writer does: every tensor stays aligned.
        for name in sorted(infos, key=lambda n: (-infos[n].dtype.itemsize, n)):
            info = infos[name]
            span = [end, end + info.nbytes]
            header[name] = {"dtype": NAMES[info.dtype], "shape": list(info.shape), "data_offsets": span}
            self._offsets[name], end = end, span[1]
        raw = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
        raw += b" " * (-len(raw) % 8)
        self._start = 8 + len(raw)
        self._file = os.open(self._partial, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        os.pwrite(self._file, len(raw).to_bytes(8, "little") + raw, 0)
        os.ftruncate(self._file, self._start + end)

    def write(self, name: str, values: torch.Tensor, start: int = 0) -> None:
        """Put ``values`` (flattened) at flat position ``start`` of tensor ``name``."""
        info = self._infos[name]
        flat = values.detach().to("cpu", info.dtype).reshape(-1).contiguous()
        view, done = raw_bytes(flat), 0
        offset = self._start + self._offsets[name] + start * info.dtype.itemsize
        while done < len(view):
            done += os.pwrite(self._file, view[done:], offset + done)

    def commit(self) -> None:
        """Make the file appear under its name."""
        os.fsync(self._file)
        os.close(self._file)
        self._partial.replace(self.path)

    def abort(self) -> None:
        """Drop everything written."""
        os.close(self._file)
        self._partial.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.abort() if kind else self.commit()


def save(path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write a state dict; the same tensors and metadata give the same bytes."""
    infos = {name: TensorInfo(tuple(t.shape), t.dtype) for name, t in tensors.items()}
    with SafetensorsWriter(path, infos, metadata) as writer:
        for name, tensor in tensors.items():
            writer.write(name, tensor)
