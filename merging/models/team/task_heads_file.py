"""The file beside a merged model with the heads of each task of the run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from merging.base.errors import CheckpointError
from merging.models.checkpoint import Checkpoint
from merging.models.formats.format_recognition import open_path
from merging.models.formats.safetensors import SafetensorsWriter
from merging.models.tensor_info import TensorInfo

HEADS_FILE = "heads.safetensors"  # its tensors are named <expert>/<tensor>


def write_heads(folder: Path, heads: Mapping[str, Mapping[str, Tensor]]) -> list[str]:
    """Write the heads of a run, {expert: {tensor: value (*S), any shape}}; returns [file name], or [] without heads."""
    tensors = {
        f"{expert}/{name}": value for expert, expert_heads in heads.items() for name, value in expert_heads.items()
    }
    if not tensors:
        return []
    infos = {name: TensorInfo(tuple(value.shape), value.dtype) for name, value in tensors.items()}
    names_json = json.dumps({expert: list(expert_heads) for expert, expert_heads in heads.items()})
    with SafetensorsWriter(folder / HEADS_FILE, infos, {"format": "pt", "heads": names_json}) as writer:
        for name, value in tensors.items():
            writer.write(name, value.contiguous())
    return [HEADS_FILE]


def read_heads(path: Path) -> dict[str, dict[str, Tensor]]:
    """{expert: {tensor: value (*S), any shape}} from a file of heads. Raises CheckpointError if it cannot be read."""
    file = open_path(path, "heads", HEADS_FILE)
    try:
        return {
            expert: {name: file.read(f"{expert}/{name}") for name in names}
            for expert, names in _names_by_expert(file).items()
        }
    except (KeyError, ValueError, AttributeError, TypeError, RecursionError):
        raise CheckpointError(f"{HEADS_FILE} of the run is damaged; run its recipe again.") from None


def _names_by_expert(file: Checkpoint) -> dict[str, list[str]]:
    names: dict[str, list[str]] = json.loads(file.metadata["heads"])
    return names
