"""What a path holds, recognized by its content: the one way in for files and folders."""

from __future__ import annotations

import os
from os.path import lexists
from pathlib import Path

from merging.checkpoints import Checkpoint, SafetensorsCheckpoint
from merging.errors import CheckpointError, printable
from merging.formats import configs, torch_pickle, torch_zip
from merging.formats.adapters import AdapterCheckpoint
from merging.formats.links import inside
from merging.formats.pickled import PickledCheckpoint
from merging.formats.sharded import ShardedCheckpoint
from merging.formats.window import Window
from merging.safetensors_file import MAX_HEADER, open_regular

MAX_INDEX = 1 << 25
PICKLED_INDEX = "pytorch_model.bin.index.json"
PROTOCOLS = range(2, 6)
ADAPTERS = ("adapter_model.safetensors", "adapter_model.bin")
WEIGHTS = (*configs.TRANSFORMERS_WEIGHTS, *configs.OPEN_CLIP_WEIGHTS)
SUFFIXES = (".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".pkl")


def open_path(path: Path, name: str, label: str) -> Checkpoint:
    """The checkpoint at a path: a file of any known format, or a folder with one in it.

    Raises:
        CheckpointError: what it is instead, or which part of it is damaged.
    """
    try:
        folder = path.is_dir()
    except (OSError, ValueError):
        folder = False  # open_regular says what is wrong with the path
    return _open_folder(path, name, label) if folder else _open_file(path, name, label)


def _open_folder(path: Path, name: str, label: str) -> Checkpoint:
    shown, config = printable(path.name, 80), configs.read_json(path / configs.ADAPTER)
    if config is not None:
        weights = next((path / file for file in ADAPTERS if lexists(path / file)), None)
        if weights is None:
            raise CheckpointError(f"{shown} is the folder of an adapter without its weights ({ADAPTERS[0]}).")
        return AdapterCheckpoint(_open_file(weights, name, label), config, label)
    known = [path / file for file in WEIGHTS if lexists(path / file)]  # what a link leads to is looked at later
    if not known and lexists(path / PICKLED_INDEX):
        raise CheckpointError(
            f"{shown} holds pickled weights in several files, which are not read; load them with Transformers and save "
            "them with save_pretrained, which writes safetensors."
        )
    if not known:
        known = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES)[:2]
        if len(known) == 2:
            raise CheckpointError(f"{shown} is a folder with several checkpoints; give the path of one of them.")
    if not known:
        raise CheckpointError(
            f"{shown} is a folder without a checkpoint; one with {', '.join(WEIGHTS[:3])} is expected, "
            f"or with {configs.ADAPTER}."
        )
    return _open_file(known[0], name, label)


def _open_file(path: Path, name: str, label: str) -> Checkpoint:
    opened = _recognized(open_regular(inside(path)), path, name, label)
    architecture, cautions = configs.beside(path)
    own = dict(opened.metadata)
    # What a file says of itself counts, but a configuration says more than the classes in a module do.
    opened.metadata = own | architecture if isinstance(opened, PickledCheckpoint) else architecture | own
    opened.cautions = (*opened.cautions, *cautions)
    return opened


def _recognized(descriptor: int, path: Path, name: str, label: str) -> Checkpoint:
    file = printable(path.name)
    window = Window.whole(descriptor, file)
    if _is_tar(window):
        os.close(descriptor)
        raise CheckpointError(f"{file} is a tar archive (torch before 0.2?), which is not read; save the model again.")
    if _is_pickled(window):
        return PickledCheckpoint(descriptor, file, name, label)
    if not _is_safetensors(window) and window.head(16).lstrip()[:1] == b"{":
        try:
            if window.size > MAX_INDEX:
                raise CheckpointError(
                    f"{file} is JSON of {window.size:,} bytes, more than an index of shards has; refused."
                )
            raw = window.read(0, window.size)
        finally:
            os.close(descriptor)
        return ShardedCheckpoint(path, raw, name, label)
    return SafetensorsCheckpoint(descriptor, file, name, label)  # says what it is if it is none


def _is_safetensors(window: Window) -> bool:
    start = window.head(9)
    return len(start) == 9 and int.from_bytes(start[:8], "little") <= MAX_HEADER and start[8:] == b"{"


def _is_tar(window: Window) -> bool:
    return window.head(512)[torch_pickle.TAR_AT :].startswith(torch_pickle.TAR_MARK)


def _is_pickled(window: Window) -> bool:
    start = window.head(16)
    if _is_safetensors(window):
        return False
    binary = len(start) > 1 and start[0] == 0x80 and start[1] in PROTOCOLS
    # Protocols 0 and 1 begin with a mark, a name or an empty container.
    textual = start[:1] in {b"(", b"c", b"]", b"}"}
    return binary or textual or start.startswith(torch_zip.MAGIC)
