"""Writing modules: a file per task and for the router, a list of the files with their hashes, and the merged model."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from merging.base.errors import StoreError
from merging.base.files.atomic import file_hash, publish, temporary_beside
from merging.base.files.disk import sync_all
from merging.base.files.paths import choose_unique_name
from merging.base.files.records import write_json
from merging.models.architecture import Architecture
from merging.models.checkpoint import Checkpoint
from merging.models.checkpoint_views import convert_naming
from merging.models.formats.safetensors import SafetensorsWriter

FOLDER, LIST, VERSION = "modules", "modules.json", 1  # the folder and the list of its files; the list's version
MODEL, CARD = "model.safetensors", "README.md"
FIELDS = {"version", "key", "params", "tasks", "model", "architecture", "files"}
RESERVED = ("router", "base")  # names of files that belong to no task; "base" holds pretrained tensors
MAX_NAME_CHARACTERS = 100  # of a task's name in a file's name
PIECE_SCALARS = 1 << 18  # scalars that are copied at a time

Parts = Iterable[tuple[str, str, Checkpoint]]  # task (empty if all tasks share the part), kind of part, its tensors


def convert_to_tower(merged: Checkpoint) -> Checkpoint:
    """A merged model's visual tower, whose digest is the same under the names of every library."""
    return convert_naming(merged, "open_clip")


def shared_file(part: str) -> str:
    """The name of the file of a part that all tasks share: the router's, or else that of the pretrained tensors."""
    return f"{FOLDER}/{part if part in RESERVED else RESERVED[-1]}.safetensors"


def choose_file_names(tasks: Sequence[str]) -> dict[str, str]:
    """{task: the name of its file}: quoted, shortened, and distinct on every file system."""
    used, names = set(RESERVED), {}
    for task in tasks:
        name = quote(task, safe=" ")[:MAX_NAME_CHARACTERS].strip(" .") or "_"
        names[task] = f"{FOLDER}/{choose_unique_name(name, used)}.safetensors"
    return names


def save_folder(
    folder: Path, merged: Checkpoint, architecture: Architecture, entry: Mapping[str, Any], parts: Parts, card: str
) -> None:
    """Write a new folder with a merged model, its modules and a card; all of it or nothing.

    Raises:
        StoreError: the folder exists already, or cannot be written.
    """
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise StoreError(f"{folder} exists already; choose another folder for the modules.")
    with temporary_beside(folder) as temporary:
        metadata = {"architecture": architecture_json(architecture)}
        _write_tensors(temporary / MODEL, convert_to_tower(merged), metadata)
        write_modules(temporary, merged, architecture, entry, parts)
        (temporary / CARD).write_text(card, "utf-8")
        sync_all(temporary)
        temporary.chmod(0o755)
        if not publish(temporary, folder.absolute()):
            raise StoreError(f"{folder} was written to by another process meanwhile; choose another folder.")


def write_modules(
    folder: Path, merged: Checkpoint, architecture: Architecture, entry: Mapping[str, Any], parts: Parts
) -> list[str]:
    """Write modules and their list beside an existing merged model; return the names of the files.

    ``entry`` has the key, the params and the tasks of the list.
    """
    (folder / FOLDER).mkdir(exist_ok=True)
    names, files = choose_file_names(entry["tasks"]), {}
    for task, part, tensors in parts:
        name = names[task] if task else shared_file(part)
        _write_tensors(folder / name, tensors, {})
        files[name] = file_hash(folder / name)
    description = {
        "model": convert_to_tower(merged).digest,
        "architecture": json.loads(architecture_json(architecture)),
        "files": files,
    }
    write_json(folder / LIST, {"version": VERSION, **entry, **description})
    return [*files, LIST]


def architecture_json(architecture: Architecture) -> str:
    """The architecture as JSON in open_clip's fields, for the metadata of a file."""
    vision = {
        "image_size": architecture.image_size,
        "layers": architecture.layers,
        "width": architecture.width,
        "head_width": architecture.width // architecture.heads,
        "patch_size": architecture.patch_size,
    }
    fields = {"embed_dim": architecture.embed_dim, "quick_gelu": architecture.quick_gelu, "vision_cfg": vision}
    return json.dumps(fields)


def _write_tensors(path: Path, tensors: Checkpoint, metadata: Mapping[str, str]) -> None:
    """Write tensors to a safetensors file, piece by piece."""
    with SafetensorsWriter(path, tensors.infos, metadata) as writer:
        for name, info in tensors.infos.items():
            for start in range(0, info.numel, PIECE_SCALARS):
                writer.write(name, tensors.read_flat(name, start, min(start + PIECE_SCALARS, info.numel)), start)
