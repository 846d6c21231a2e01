"""Opens files and folders as checkpoints; the format is recognized by the content."""

from __future__ import annotations

import os
from os.path import lexists
from pathlib import Path

from merging.base.errors import CheckpointError
from merging.base.files.paths import open_regular, resolve_contained
from merging.base.text import printable
from merging.models.checkpoint import Checkpoint
from merging.models.checkpoint_views import to_open_clip_names
from merging.models.formats import configs
from merging.models.formats.adapter_checkpoint import AdapterCheckpoint
from merging.models.formats.byte_range import ByteRange
from merging.models.formats.configs import ADAPTER_WEIGHTS, WEIGHT_FILES, WEIGHT_SUFFIXES
from merging.models.formats.integer_changes import START_BYTES, is_integer_changes, open_changes
from merging.models.formats.referenced_model import is_reference, open_reference
from merging.models.formats.safetensors import MAX_HEADER_BYTES, SafetensorsCheckpoint
from merging.models.formats.sharded_checkpoint import ShardedCheckpoint
from merging.models.formats.torch_pickle import containers, zip_archive
from merging.models.formats.torch_pickle.pickled_checkpoint import PickledCheckpoint
from merging.models.head_detection import HEAD_NAME

MAX_INDEX_BYTES = 1 << 25
PICKLE_PROTOCOLS = range(2, 6)


def open_path(path: Path, name: str, label: str) -> Checkpoint:
    """The checkpoint at a path: a file of any known format, or a folder with one in it.

    Raises:
        CheckpointError: the path holds no checkpoint (the message describes its content), or a part of it is damaged.
    """
    try:
        is_folder = path.is_dir()
    except (OSError, ValueError):
        is_folder = False  # open_regular says what is wrong with the path
    opened = _open_folder(path, name) if is_folder else _open_file(path, name)
    opened.label, opened.folder = label, path if is_folder else path.parent
    return opened


def _open_folder(path: Path, name: str) -> Checkpoint:
    folder, config = printable(path.name, 80), configs.read_json(path / configs.ADAPTER_CONFIG)
    if config is not None:
        weights = next((path / file for file in ADAPTER_WEIGHTS if lexists(path / file)), None)
        if weights is None:
            raise CheckpointError(f"{folder} is the folder of an adapter without its weights ({ADAPTER_WEIGHTS[0]}).")
        return AdapterCheckpoint(_open_file(weights, name), config)
    paths = [path / file for file in WEIGHT_FILES if lexists(path / file)]  # links are checked later
    if not paths:
        paths = sorted(file for file in path.iterdir() if file.suffix in WEIGHT_SUFFIXES)
        paths = [
            file for file in paths if not HEAD_NAME.fullmatch(file.stem)
        ] or paths  # heads beside an encoder do not count
        if len(paths) > 1:
            raise CheckpointError(f"{folder} is a folder with several checkpoints; give the path of one of them.")
    if not paths:
        raise CheckpointError(
            f"{folder} is a folder without a checkpoint; one with {', '.join(WEIGHT_FILES[:3])} is expected, "
            f"or with {configs.ADAPTER_CONFIG}."
        )
    return _open_file(paths[0], name)


def _open_file(path: Path, name: str) -> Checkpoint:
    opened = _recognize_format(open_regular(resolve_contained(path)), path, name)
    architecture, cautions = configs.read_config_beside(path)
    file_metadata = dict(opened.metadata)
    # A file's own metadata has priority, except in pickles: a configuration says more than the classes in a module.
    opened.metadata = (
        file_metadata | architecture if isinstance(opened, PickledCheckpoint) else architecture | file_metadata
    )
    opened.cautions = (*opened.cautions, *cautions)
    return opened


def _recognize_format(descriptor: int, path: Path, name: str) -> Checkpoint:
    """The checkpoint in an open file, by the first bytes of the file."""
    file_name = printable(path.name)
    window = ByteRange.from_descriptor(descriptor, file_name)
    if _is_tar(window):
        os.close(descriptor)
        raise CheckpointError(
            f"{file_name} is a tar archive (torch before 0.2?), which is not read; save the model again."
        )
    if window.read_start(4) == b"GGUF":
        os.close(descriptor)
        raise CheckpointError(
            f"{file_name} is quantized (GGUF); task vectors need full numbers. Give the model it was made from."
        )
    if is_integer_changes(window.read_start(START_BYTES)):
        os.close(descriptor)
        return open_changes(path, name, _open_canonical)
    is_safetensors = _is_safetensors(window) or _is_truncated_safetensors(window, path)
    if not is_safetensors and _is_pickled(window):
        return PickledCheckpoint(descriptor, file_name, name)
    if not is_safetensors and window.read_start(16).lstrip()[:1] == b"{":
        try:
            if window.size > MAX_INDEX_BYTES:
                raise CheckpointError(
                    f"{file_name} is JSON of {window.size:,} bytes, more than any index of shards; refused."
                )
            raw = window.read(0, window.size)
        finally:
            os.close(descriptor)
        if is_reference(path, raw):
            return open_reference(path, raw, _open_canonical)
        return ShardedCheckpoint(path, raw, name)
    return SafetensorsCheckpoint(
        descriptor, file_name, name
    )  # raises an error that describes the file if it is not safetensors


def _open_canonical(path: Path) -> Checkpoint:
    """The model that another file refers to, under open_clip's names."""
    return to_open_clip_names(open_path(path, path.stem, str(path)))


def _is_safetensors(window: ByteRange) -> bool:
    start = window.read_start(9)
    return len(start) == 9 and int.from_bytes(start[:8], "little") <= MAX_HEADER_BYTES and start[8:] == b"{"


def _is_truncated_safetensors(window: ByteRange, path: Path) -> bool:
    """Whether a file called .safetensors ends within the header's length, or states a length that is too large.

    A file with this suffix may also be JSON, which has no zero bytes.
    """
    start = window.read_start(9)
    if path.suffix != ".safetensors" or (start[:1] == b"{" and b"\0" not in start):
        return False
    return len(start) < 9 or start[8:] == b"{"


def _is_tar(window: ByteRange) -> bool:
    return window.read_start(512)[containers.TAR_OFFSET :].startswith(containers.TAR_MARK)


def _is_pickled(window: ByteRange) -> bool:
    start = window.read_start(16)
    binary = len(start) > 1 and start[0] == 0x80 and start[1] in PICKLE_PROTOCOLS
    # Protocols 0 and 1 begin with a mark, a name or an empty container.
    textual = start[:1] in {b"(", b"c", b"]", b"}"}
    return binary or textual or start.startswith(zip_archive.ZIP_MAGIC)
