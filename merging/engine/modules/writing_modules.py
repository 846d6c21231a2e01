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

FOLDER, LIST, VERSION = "modules", "modules.json", 1
MODEL, CARD = "model.safetensors", "README.md"
FIELDS = {"version", "key", "params", "tasks", "model", "architecture", "files"}
RESERVED = ("router", "base")  # names of files that belong to no task
LONGEST = 100  # the most characters of a task's name in a file's name
PIECE = 1 << 18  # scalars that are copied at a time

Parts = Iterable[tuple[str, str, Checkpoint]]  # task (empty if all tasks share the part), kind of part, its tensors


def merged_tower(merged: Checkpoint) -> Checkpoint:
    """A merged model's visual tower, whose digest is the same under the names of every library."""
    return convert_naming(merged, "open_clip")


def shared_file(part: str) -> str:
    """The name of the file of a part that all tasks share."""
    return f"{FOLDER}/{part if part in RESERVED else RESERVED[-1]}.safetensors"


def file_names(tasks: Sequence[str]) -> dict[str, str]:
    """{task: the name of its file}: quoted, shortened, and distinct on every file system."""
    used, names = set(RESERVED), {}
    for task in tasks:
        name = quote(task, safe=" ")[:LONGEST].strip(" .") or "_"
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
    with temporary_beside(folder) as partial:
        _copy(partial / MODEL, convert_naming(merged, "open_clip"), {"architecture": architecture_json(architecture)})
        write_modules(partial, merged, architecture, entry, parts)
        (partial / CARD).write_text(card, "utf-8")
        sync_all(partial)
        partial.chmod(0o755)
        if not publish(partial, folder.absolute()):
            raise StoreError(f"{folder} was written to by another process meanwhile; choose another folder.")


def write_modules(
    folder: Path, merged: Checkpoint, architecture: Architecture, entry: Mapping[str, Any], parts: Parts
) -> list[str]:
    """Write modules and their list beside an existing merged model; returns the names of the files.

    ``entry`` has the key, the params and the tasks of the list.
    """
    (folder / FOLDER).mkdir(exist_ok=True)
    names, files = file_names(entry["tasks"]), {}
    for task, part, tensors in parts:
        name = names[task] if task else shared_file(part)
        _copy(folder / name, tensors, {})
        files[name] = file_hash(folder / name)
    listed = {
        "model": merged_tower(merged).digest,
        "architecture": json.loads(architecture_json(architecture)),
        "files": files,
    }
    write_json(folder / LIST, {"version": VERSION, **entry, **listed})
    return [*files, LIST]


def architecture_json(architecture: Architecture) -> str:
    """The architecture as JSON in open_clip's fields, for the metadata of a file."""
    a = architecture
    vision = {"image_size": a.image_size, "layers": a.layers, "width": a.width}
    vision |= {"head_width": a.width // a.heads, "patch_size": a.patch_size}
    return json.dumps({"embed_dim": a.embed_dim, "quick_gelu": a.quick_gelu, "vision_cfg": vision})


def _copy(path: Path, tensors: Checkpoint, metadata: Mapping[str, str]) -> None:
    with SafetensorsWriter(path, tensors.infos, metadata) as writer:
        for name, info in tensors.infos.items():
            for start in range(0, info.numel, PIECE):
                writer.write(name, tensors.read_flat(name, start, min(start + PIECE, info.numel)), start)
