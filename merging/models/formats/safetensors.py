"""The safetensors format, read by offset and written in place: no memory mapping, no copies in memory.

If a mapped file is truncated while it is open, the whole server is killed. Reading by offset turns that into an error
about one file. The header is checked against the file's size before anything is allocated.
"""

from __future__ import annotations

import json
import os
import reprlib
import weakref
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor

from merging.base.errors import CheckpointError
from merging.base.files import disk
from merging.base.files.paths import file_fingerprint
from merging.base.files.strict_json import parse_json
from merging.base.files.temporary import temporary_name
from merging.models.checkpoint import Checkpoint, Spans
from merging.models.tensor_info import (
    DTYPE_NAMES,
    DTYPES,
    MAX_DIMENSIONS,
    MAX_TENSORS,
    TensorInfo,
    raw_bytes,
    read_span,
    read_spans,
)

MAX_HEADER_BYTES = 100_000_000
LENGTH_BYTES = 8  # of the number before the header, which is the header's length
ALIGNMENT = 8  # bytes; the header is padded to a multiple
SYNC_BYTES = 1 << 25  # bytes written between two syncs to the disk
DOWNLOAD_AGAIN = "The file is damaged: download it again, or write it with safetensors."
COMPLEX_NOTES = {"C64": " (complex numbers)", "C128": " (complex numbers)"}
OTHER_FILE_TYPES = {  # first bytes of other well-known files, in lower case
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
class Header:
    """The header of a safetensors file: tensors, the byte offset of each, and text metadata."""

    infos: dict[str, TensorInfo]
    offsets: dict[str, int]
    metadata: dict[str, str]


def read_header(descriptor: int, label: str) -> Header:
    """The checked header of an open file.

    Raises:
        CheckpointError: not safetensors, truncated, with trailing bytes, or with overlaps, gaps or wrong sizes.
    """
    size = os.fstat(descriptor).st_size
    if size == 0:
        raise CheckpointError(f"{label} is empty (0 bytes).")
    length = int.from_bytes(os.pread(descriptor, LENGTH_BYTES, 0), "little")
    if size < LENGTH_BYTES or length > MAX_HEADER_BYTES or length > size - LENGTH_BYTES:
        raise CheckpointError(f"{label}: {_describe_content(descriptor, size, length)}")
    entries = parse_json(os.pread(descriptor, length, LENGTH_BYTES), label, "the header")
    metadata = entries.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise CheckpointError(f"{label}: the metadata is not a mapping of text to text. {DOWNLOAD_AGAIN}")
    return parse_header(entries, metadata, start=LENGTH_BYTES + length, size=size, label=label)


def _describe_content(descriptor: int, size: int, length: int) -> str:
    """A phrase for messages: the kind of a file that is not safetensors, and its remedy."""
    start, has_header = os.pread(descriptor, 64, 0).lstrip().lower(), os.pread(descriptor, 1, LENGTH_BYTES) == b"{"
    truncated = (
        f"truncated: the header alone promises {length + LENGTH_BYTES} bytes, the file has {size}; download it again."
    )
    if size < LENGTH_BYTES and length <= MAX_HEADER_BYTES:
        return f"truncated: it has {size} bytes, and the first 8 give the length of the header; download it again."
    if length > MAX_HEADER_BYTES and has_header:
        return (
            f"its header claims to take {length:,} bytes, and at most {MAX_HEADER_BYTES:,} are read; download it again."
        )
    if length <= MAX_HEADER_BYTES and (has_header or size == LENGTH_BYTES):
        return truncated
    for magic, text in OTHER_FILE_TYPES.items():
        if start.startswith(magic):
            return text
    if LENGTH_BYTES < length <= MAX_HEADER_BYTES:
        return truncated
    return f"neither safetensors nor another known kind of checkpoint (file size {size} bytes)."


def parse_header(entries: dict[str, Any], metadata: dict[str, str], *, start: int, size: int, label: str) -> Header:
    """The header of a file of ``size`` bytes whose numbers begin at byte ``start``.

    Raises:
        CheckpointError: an entry is malformed, or the tensors do not fill the file exactly.
    """
    if len(entries) > MAX_TENSORS:
        raise CheckpointError(f"{label} holds {len(entries):,} tensors; refused.")
    infos: dict[str, TensorInfo] = {}
    spans: list[tuple[int, int, str]] = []
    stored = 0
    for name, entry in entries.items():
        infos[name], begin, end = _parse_entry(name, entry, label)
        stored += infos[name].nbytes
        spans.append((begin, end, name))
    if not infos:
        raise CheckpointError(f"{label} holds no tensors.")
    for begin, end, name in spans:
        if start + end > size >= start + stored:  # the file is large enough for all numbers, but not at these offsets
            raise CheckpointError(
                f"{label}: tensor {name[:80]!r} reaches past the end of the file: its offsets are {begin} and {end}, "
                f"the file has {size - start} bytes of numbers. {DOWNLOAD_AGAIN}"
            )
    expected = 0
    for begin, end, name in sorted(spans):
        if begin != expected:
            problem = "overlaps the one before it" if begin < expected else "leaves a hole before it"
            raise CheckpointError(
                f"{label}: tensor {name[:80]!r} {problem} (starts at {begin}, expected {expected}). {DOWNLOAD_AGAIN}"
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


def _parse_entry(name: str, entry: Any, label: str) -> tuple[TensorInfo, int, int]:
    try:
        dtype_text, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        valid = isinstance(shape, list) and len(shape) <= MAX_DIMENSIONS and isinstance(dtype_text, str)
        valid = valid and all(type(v) is int and 0 <= v < 2**63 for v in (*shape, begin, end))
    except (TypeError, KeyError, ValueError):
        valid = False
    if not valid:
        raise CheckpointError(
            f"{label}: the header's entry of tensor {name[:80]!r} is malformed: a dtype, a shape and two offsets "
            f"of whole numbers are expected, {reprlib.repr(entry)} was found. {DOWNLOAD_AGAIN}"
        )
    if dtype_text not in DTYPES:
        raise CheckpointError(
            f"{label}: tensor {name[:80]!r} has dtype {dtype_text[:20]!r}{COMPLEX_NOTES.get(dtype_text, '')}, which "
            "cannot be merged; convert it."
        )
    info = TensorInfo(tuple(shape), DTYPES[dtype_text])
    if end - begin != info.nbytes:
        raise CheckpointError(
            f"{label}: tensor {name[:80]!r} of shape {list(shape)} and dtype {dtype_text} needs {info.nbytes} bytes, "
            f"its offsets give {end - begin}. {DOWNLOAD_AGAIN}"
        )
    return info, begin, end


def encode_header(infos: Mapping[str, TensorInfo], metadata: Mapping[str, str]) -> tuple[bytes, dict[str, int]]:
    """The bytes of a file before its numbers, and {tensor: byte offset of its numbers after these bytes}."""
    header: dict[str, Any] = {"__metadata__": dict(sorted(metadata.items()))} if metadata else {}
    offsets, end = dict[str, int](), 0
    # Widest dtypes first, then by name, as the reference writer does: every tensor stays aligned.
    for name in sorted(infos, key=lambda n: (-infos[n].dtype.itemsize, n)):
        info = infos[name]
        dtype, span = DTYPE_NAMES[info.dtype].safetensors, [end, end + info.nbytes]
        header[name] = {"dtype": dtype, "shape": list(info.shape), "data_offsets": span}
        offsets[name], end = end, span[1]
    raw = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % ALIGNMENT)
    return len(raw).to_bytes(LENGTH_BYTES, "little") + raw, offsets


class SafetensorsWriter:
    """Writes tensors of known shapes in any order, whole or in pieces; the file appears only when it is complete.

    Another thread syncs written bytes to the disk, so that ``commit`` need not wait for all of them.
    """

    def __init__(self, path: Path, infos: Mapping[str, TensorInfo], metadata: Mapping[str, str] | None = None) -> None:
        self.path = path
        self._partial = path.with_name(f".{temporary_name()}")
        self._infos = dict(infos)
        head, self._offsets = encode_header(infos, metadata or {})
        self._start, end = len(head), sum(info.nbytes for info in infos.values())
        self._unsynced, self._remaining, self._sync_thread = 0, self._start + end, ThreadPoolExecutor(1)
        self._syncs: list[Future[None]] = []
        self._file = os.open(self._partial, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            self._write_bytes(memoryview(head), 0)
            disk.reserve_space(self._file, self._start + end)
        except OSError:
            self.abort()
            raise

    def write(self, name: str, values: torch.Tensor, start: int = 0) -> None:
        """Write ``values`` (*S), flattened, from scalar ``start`` on of tensor ``name``; they get its dtype."""
        info = self._infos[name]
        flat = values.detach().to("cpu", info.dtype).reshape(-1).contiguous()
        self._write_bytes(raw_bytes(flat), self._start + self._offsets[name] + start * info.dtype.itemsize)

    def _write_bytes(self, view: memoryview, offset: int) -> None:
        """Write all bytes at ``offset``; an almost full disk accepts only a part of them at a time."""
        written_bytes = 0
        while written_bytes < len(view):
            written_bytes += os.pwrite(self._file, view[written_bytes:], offset + written_bytes)
        self._unsynced += len(view)
        self._remaining -= len(view)
        if self._remaining == 0 or (self._unsynced >= SYNC_BYTES and all(sync.done() for sync in self._syncs)):
            self._unsynced = 0
            self._syncs.append(self._sync_thread.submit(os.fsync, self._file))

    def _wait_for_syncs(self) -> None:
        """Wait for the other thread; raise its OSError, which the system reports only once."""
        for sync in self._syncs:
            sync.result()

    def commit(self) -> None:
        """Finish the file and move it to its path."""
        try:
            self._wait_for_syncs()
            os.fsync(self._file)
        except OSError:
            self.abort()
            raise
        self._sync_thread.shutdown()
        os.close(self._file)
        self._partial.replace(self.path)

    def abort(self) -> None:
        """Delete the partial file."""
        self._sync_thread.shutdown()
        os.close(self._file)
        self._partial.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.abort() if kind else self.commit()


def save(path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write a state dict of tensors (*S), any shape; equal tensors and metadata give equal bytes."""
    infos = {name: TensorInfo(tuple(t.shape), t.dtype) for name, t in tensors.items()}
    with SafetensorsWriter(path, infos, metadata) as writer:
        for name, tensor in tensors.items():
            writer.write(name, tensor)


class SafetensorsCheckpoint(Checkpoint):
    """A safetensors file, read by offset from an open descriptor, which is closed with the checkpoint."""

    def __init__(self, descriptor: int, file: str, name: str) -> None:
        self.name, self.label = name, file
        self._descriptor, self._file = descriptor, file
        weakref.finalize(self, os.close, descriptor)
        header = read_header(descriptor, file)
        self.infos, self._offsets, self.metadata = header.infos, header.offsets, header.metadata

    def read_flat(self, name: str, start: int, stop: int) -> Tensor:
        """Scalars [start, stop) of a tensor, flat (n,): n = stop - start."""
        dtype = self.infos[name].dtype
        offset = self._offsets[name] + start * dtype.itemsize
        return read_span(self._descriptor, offset, stop - start, dtype, self._file)

    def read_spans(self, name: str, spans: Spans) -> Tensor:
        """The scalars in the spans of a tensor, joined and flat (n,)."""
        return read_spans(self._descriptor, self._offsets[name], spans, self.infos[name].dtype, self._file)

    def file_fingerprint(self) -> tuple[int, ...]:
        return file_fingerprint(self._descriptor)


def encode_tensor(name: str, values: Tensor, metadata: Mapping[str, str]) -> bytes:
    """The bytes of a safetensors file with one tensor ``values`` (*S): any shape, and metadata."""
    flat = values.detach().cpu().reshape(-1).contiguous()
    head, _ = encode_header({name: TensorInfo(tuple(values.shape), values.dtype)}, metadata)
    return head + bytes(raw_bytes(flat))


def decode_tensor(raw: bytes, label: str) -> tuple[str, Tensor, dict[str, str]]:
    """The name, the tensor (*S): any shape, and the metadata in the bytes that ``encode_tensor`` wrote.

    Raises:
        CheckpointError: the bytes are not a safetensors file with one tensor.
    """
    start = LENGTH_BYTES + int.from_bytes(raw[:LENGTH_BYTES], "little")
    entries = parse_json(raw[LENGTH_BYTES:start], label, "the header")
    metadata = entries.pop("__metadata__", {})
    if not isinstance(metadata, dict) or len(entries) != 1:
        raise CheckpointError(f"{label} holds {len(entries)} tensors; one is expected, with metadata.")
    header = parse_header(entries, metadata, start=start, size=len(raw), label=label)
    name, info = next(iter(header.infos.items()))
    numbers = torch.frombuffer(bytearray(raw[start:]), dtype=torch.uint8) if info.nbytes else torch.empty(0)
    return name, numbers.view(info.dtype).reshape(info.shape), header.metadata
