"""One tensor as the bytes of a safetensors file, which programs send each other."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from merging.checkpoints.tensor_info import TensorInfo, raw_bytes
from merging.errors import CheckpointError
from merging.files.strict_json import parse
from merging.formats.safetensors import checked_header, written_header

LENGTH = 8  # bytes that say how long the header is


def file_bytes(name: str, values: Tensor, metadata: Mapping[str, str]) -> bytes:
    """The bytes of a file with this tensor (*S) and metadata."""
    flat = values.detach().cpu().reshape(-1).contiguous()
    head, _ = written_header({name: TensorInfo(tuple(values.shape), values.dtype)}, metadata)
    return head + bytes(raw_bytes(flat))


def tensor_of(raw: bytes, label: str) -> tuple[str, Tensor, dict[str, str]]:
    """The name, the tensor (*S) and the metadata that ``file_bytes`` wrote. Raises CheckpointError for other bytes."""
    start = LENGTH + int.from_bytes(raw[:LENGTH], "little")
    entries = parse(raw[LENGTH:start], label, "the header")
    metadata = entries.pop("__metadata__", {})
    if not isinstance(metadata, dict) or len(entries) != 1:
        raise CheckpointError(f"{label} holds {len(entries)} tensors; one is expected, with metadata.")
    header = checked_header(entries, metadata, start=start, size=len(raw), label=label)
    name, info = next(iter(header.infos.items()))
    numbers = torch.frombuffer(bytearray(raw[start:]), dtype=torch.uint8) if info.nbytes else torch.empty(0)
    return name, numbers.view(info.dtype).reshape(info.shape), header.metadata
