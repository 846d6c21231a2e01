"""Weights as safetensors in one file or several, copied in pieces, so that memory never holds a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from torch import Tensor

from merging.base.files.records import write_json
from merging.base.parallel import prefetch
from merging.base.progress import Meter
from merging.models.checkpoint import Checkpoint
from merging.models.formats.configs import INDEX_SUFFIX
from merging.models.formats.safetensors import SafetensorsWriter
from merging.models.tensor_info import TensorInfo

SHARD_BYTES = 5_000_000_000  # bytes above which a model is sharded
PIECE_SCALARS = 1 << 18  # scalars copied at a time; for larger pieces the system allocates new memory each time
WRITING_PHASE = "Writing the model"

Files = Mapping[str, Sequence[str]]  # file name -> the tensors in it


def divide_into_shards(
    infos: Mapping[str, TensorInfo], file: str, max_bytes: int = SHARD_BYTES
) -> dict[str, list[str]]:
    """{file: its tensors}: all in ``file``, or in numbered shards of at most ``max_bytes`` bytes.

    A larger tensor has its own shard.
    """
    groups: list[list[str]] = [[]]
    remaining_bytes = max_bytes
    for name in sorted(infos):
        if infos[name].nbytes > remaining_bytes and groups[-1]:
            groups.append([])
            remaining_bytes = max_bytes
        groups[-1].append(name)
        remaining_bytes -= infos[name].nbytes
    if len(groups) == 1:
        return {file: groups[0]}
    stem, dot, ending = file.rpartition(".")
    count = len(groups)
    return {f"{stem}-{number:05}-of-{count:05}{dot}{ending}": names for number, names in enumerate(groups, 1)}


def write_weights(
    folder: Path,
    checkpoint: Checkpoint,
    file: str,
    metadata: Mapping[str, str],
    meter: Meter,
    max_bytes: int = SHARD_BYTES,
) -> None:
    """Write all tensors of a checkpoint, with an index if there are several files. Equal tensors give equal bytes.

    Raises:
        Cancelled: the caller cancelled.
    """
    files = divide_into_shards(checkpoint.infos, file, max_bytes)
    for part, names in files.items():
        write_weight_file(folder / part, checkpoint, metadata, meter, names)
    if len(files) > 1:
        index = {
            "metadata": {"total_size": checkpoint.nbytes},
            "weight_map": {name: part for part, names in files.items() for name in names},
        }
        write_json(folder / f"{file}{INDEX_SUFFIX}", index)


def write_weight_file(
    path: Path, checkpoint: Checkpoint, metadata: Mapping[str, str], meter: Meter, names: Sequence[str] | None = None
) -> None:
    """Write some or all tensors of a checkpoint into one file, completely or not at all."""
    infos = {name: checkpoint.infos[name] for name in names or checkpoint.infos}
    with SafetensorsWriter(path, infos, metadata) as writer, prefetch(_read_pieces(checkpoint, infos)) as pieces:
        for name, start, values in pieces:
            writer.write(name, values, start)
            meter.advance(values.nbytes, WRITING_PHASE, name)


def _read_pieces(checkpoint: Checkpoint, infos: Mapping[str, TensorInfo]) -> Iterator[tuple[str, int, Tensor]]:
    """The pieces of all tensors: name, index of the first scalar, values (n,)."""
    for name, info in infos.items():
        for start in range(0, info.numel, PIECE_SCALARS):
            yield name, start, checkpoint.read_flat(name, start, min(start + PIECE_SCALARS, info.numel))
