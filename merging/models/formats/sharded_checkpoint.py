"""Weights in several files, safetensors or pickles, with an index that maps tensors to files."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

from torch import Tensor

from merging.base.errors import CheckpointError
from merging.base.files.paths import open_regular, resolve_contained
from merging.base.files.strict_json import parse_json
from merging.base.text import first_few, printable
from merging.models.checkpoint import Checkpoint
from merging.models.formats.configs import PICKLED_INDEX
from merging.models.formats.safetensors import SafetensorsCheckpoint
from merging.models.formats.torch_pickle.pickled_checkpoint import PickledCheckpoint

MAX_SHARDS = 500
MAX_NAME_LENGTH = 200

Shards = dict[str, SafetensorsCheckpoint | PickledCheckpoint]


class ShardedCheckpoint(Checkpoint):
    """The shards of one model as one checkpoint."""

    def __init__(self, path: Path, raw: bytes, name: str) -> None:
        self.name = self.label = name
        file_name = printable(path.name)
        index, self._index_crc = parse_json(raw, file_name), zlib.crc32(raw)
        weights = _read_weight_map(index, file_name)
        files = sorted(set(weights.values()))
        if len(files) > MAX_SHARDS:
            raise CheckpointError(f"{file_name} names {len(files):,} shards; refused.")
        self._shards = {file: self._open_shard(path, file, name) for file in files}
        _check_shards(self._shards, weights, file_name)
        self._file_by_tensor = weights
        self.infos = {tensor: self._shards[file].infos[tensor] for tensor, file in weights.items()}
        self.metadata = {k: v for file in files for k, v in self._shards[file].metadata.items()}
        self.cautions = tuple(_list_cautions(self._shards, weights, index, self.nbytes))

    @staticmethod
    def _open_shard(path: Path, file: str, name: str) -> SafetensorsCheckpoint | PickledCheckpoint:
        shard = path.parent / file
        if not shard.is_symlink() and not shard.exists():
            raise CheckpointError(f"{printable(path.name)}: the shard {file!r} is missing; download it, too.")
        descriptor = open_regular(resolve_contained(shard))
        if path.name == PICKLED_INDEX:
            return PickledCheckpoint(descriptor, file, name)
        return SafetensorsCheckpoint(descriptor, file, name)

    @property
    def shard_count(self) -> int:
        """The number of files."""
        return len(self._shards)

    def read_flat(self, name: str, start: int, stop: int) -> Tensor:
        """Scalars [start, stop) of a tensor, flat (n,): n = stop - start, from its shard."""
        return self._shards[self._file_by_tensor[name]].read_flat(name, start, stop)

    def file_fingerprint(self) -> tuple[int, ...]:
        return (self._index_crc, *(number for shard in self._shards.values() for number in shard.file_fingerprint()))


def _read_weight_map(index: dict[str, Any], label: str) -> dict[str, str]:
    """{tensor: name of its file} from an index, which is untrusted."""
    weights = index.get("weight_map")
    if not isinstance(weights, dict) or not weights:
        raise CheckpointError(
            f"{label} is JSON, but not an index of shards: it has no 'weight_map' from tensors to files. "
            "Give the weights themselves, or their folder."
        )
    for tensor, file in weights.items():
        if not isinstance(file, str):
            raise CheckpointError(f"{label}: the file of tensor {tensor[:80]!r} is not text.")
        is_odd = not file or len(file) > MAX_NAME_LENGTH or not file.isprintable() or file.startswith(".")
        if is_odd or any(sign in file for sign in "/\\:"):
            raise CheckpointError(f"{label}: the file of tensor {tensor[:80]!r} is outside of its folder; refused.")
    return weights


def _check_shards(shards: Shards, weights: dict[str, str], label: str) -> None:
    """Raise CheckpointError unless every tensor in the index is in its shard and not in another one."""
    for tensor, file in weights.items():
        if tensor not in shards[file].infos:
            raise CheckpointError(f"{label}: tensor {tensor[:80]!r} is not in {file!r}, where the index says it is.")
    for file, shard in shards.items():
        for tensor in shard.infos:
            if weights.get(tensor, file) != file:
                raise CheckpointError(f"{label}: tensor {tensor[:80]!r} is in {file!r} and in {weights[tensor]!r}.")


def _list_cautions(shards: Shards, weights: dict[str, str], index: dict[str, Any], tensor_bytes: int) -> list[str]:
    cautions = []
    unlisted = [tensor for shard in shards.values() for tensor in shard.infos if tensor not in weights]
    if unlisted:
        cautions.append(f"The shards hold tensors that the index does not list; ignored: {first_few(unlisted)}.")
    metadata = index.get("metadata")
    stated_size = metadata.get("total_size") if isinstance(metadata, dict) else None
    if stated_size is not None and stated_size != tensor_bytes:
        cautions.append(f"The index promises {str(stated_size)[:30]} bytes of tensors, the shards hold {tensor_bytes}.")
    return cautions
