"""Reading folders with modules, which may come from an untrusted source.

A folder names no code: its key must be that of a registered adapt, the names of its files follow from the names of its
tasks, and every tensor must have the shape that follows from the adapt's parameters and the model. The list of a folder
is a JSON file that names the adapt, the tasks and the model, and every other file with its hash.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from merging.base.devices import choose_device
from merging.base.errors import CheckpointError, MergingError
from merging.base.files.paths import open_regular, resolve_contained
from merging.base.files.strict_json import parse_json
from merging.base.text import first_few
from merging.engine.modules.mixed_tower import LEFT, RIGHT
from merging.engine.modules.modules import BASE, ROUTER, Modules
from merging.engine.modules.writing_modules import (
    FIELDS,
    LIST,
    VERSION,
    choose_file_names,
    convert_to_tower,
    shared_file,
)
from merging.methods import registry
from merging.methods.adapted_network import Learned, Sizes
from merging.models.architecture import Architecture
from merging.models.checkpoint import Checkpoint, MappingCheckpoint
from merging.models.checkpoint_views import convert_naming, identity_view
from merging.models.formats.model_sources import open_checkpoint
from merging.models.formats.safetensors import SafetensorsCheckpoint

MAX_LIST_BYTES, MAX_TASKS = 1 << 20, 1000  # of a list that is read
FLOAT_DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def load_modules(folder: str | os.PathLike[str], device: str = "cpu") -> Modules:
    """The modules in a folder that ``Modules.save`` or an export wrote, with the merged model beside them.

    Raises:
        CheckpointError: a file is missing, damaged or differs from the list, or the modules belong to another model.
    """
    path = Path(folder)
    if not (path / LIST).exists():
        raise CheckpointError(
            f"{path.name} has no {LIST}, so it is not a folder with modules. Pass the folder of an export."
        )
    return read_modules(path, open_merged(path)).on(choose_device(device))


def open_merged(folder: Path) -> Checkpoint:
    """The merged model in a folder."""
    return open_checkpoint(folder, "merged")


def read_modules(folder: Path, merged: Checkpoint) -> Modules:
    """The modules in a folder, on top of a merged model that may be in another folder.

    Raises:
        CheckpointError: as ``load_modules``.
    """
    entry = _read_list(folder)
    try:
        method = registry.find_adapt(entry["key"])
        params = method.params.build(entry["params"], method.key)
    except MergingError as error:
        raise CheckpointError(f"{LIST}: {error}") from None
    tasks = tuple(entry["tasks"])
    if (tower := convert_to_tower(merged)).digest != entry["model"]:
        raise CheckpointError(
            f"The modules were made for another model: {LIST} gives the digest {entry['model'][:12]}…, this model has "
            f"{tower.digest[:12]}…. Use the model of the same run."
        )
    view = identity_view(merged)  # the list states the architecture, which the model's file may lack
    view.metadata = {**merged.metadata, "architecture": json.dumps(entry["architecture"])}
    architecture = Architecture.from_checkpoint(view)
    files = {name: _open_listed_file(folder, name, sha) for name, sha in entry["files"].items()}
    shapes = method.shapes(params, Sizes(len(tasks), architecture.layers, architecture.width, architecture.embed_dim))
    names = choose_file_names(tasks)
    stores = method.stores is not None  # such an adapt learns no tensors per task
    router = _read_tensors(files, shared_file(ROUTER), shapes.router)
    per_task = {} if stores else {task: _read_tensors(files, name, shapes.per_task) for task, name in names.items()}
    stored = {task: _read_stored(files.get(name), task, merged) for task, name in names.items()} if stores else {}
    base = files.get(shared_file(BASE))
    return Modules(method.key, params, tasks, Learned(router, per_task), merged, architecture, stored, base)


def _read_list(folder: Path) -> dict[str, Any]:
    """The list in a folder, with every field checked."""
    descriptor = open_regular(resolve_contained(folder / LIST))
    try:
        size = os.fstat(descriptor).st_size
        if size > MAX_LIST_BYTES:
            raise CheckpointError(f"{LIST} is {size:,} bytes, more than a list of modules can be; it is not read.")
        entry = parse_json(os.pread(descriptor, size, 0), LIST)
    finally:
        os.close(descriptor)
    if entry.get("version") != VERSION or set(entry) != FIELDS:
        raise CheckpointError(
            f"{LIST} is not a list of modules of version {VERSION}: it has {first_few(sorted(map(str, entry)))}, "
            f"expected are {', '.join(sorted(FIELDS))}."
        )
    tasks, files = entry["tasks"], entry["files"]
    if not (isinstance(tasks, list) and all(isinstance(task, str) for task in tasks) and len(set(tasks)) == len(tasks)):
        raise CheckpointError(f"{LIST}: tasks is a list of different names; got {reprlib.repr(tasks)}.")
    if not 0 < len(tasks) <= MAX_TASKS:
        raise CheckpointError(f"{LIST} names {len(tasks):,} tasks; from 1 to {MAX_TASKS:,} are read.")
    allowed = {*choose_file_names(tuple(tasks)).values(), *map(shared_file, (ROUTER, BASE))}
    if not isinstance(files, dict) or not all(isinstance(sha, str) for sha in files.values()):
        raise CheckpointError(f"{LIST}: files is a mapping of name to SHA-256; got {reprlib.repr(files)}.")
    if unexpected := sorted(set(files) - allowed):
        raise CheckpointError(f"{LIST} names files that belong to none of its tasks: {first_few(unexpected)}.")
    has_texts = all(isinstance(entry[name], str) for name in ("key", "model"))
    if not has_texts or not all(isinstance(entry[name], dict) for name in ("params", "architecture")):
        raise CheckpointError(f"{LIST}: key and model are texts, params and architecture are mappings.")
    return entry


def _open_listed_file(folder: Path, name: str, sha: str) -> SafetensorsCheckpoint:
    """A listed file, with its hash checked."""
    descriptor = open_regular(resolve_contained(folder / name))  # hashing and reading use the same open file
    checkpoint = SafetensorsCheckpoint(descriptor, name, name)
    if _hash_file(descriptor) != sha:
        raise CheckpointError(f"{name} does not have the SHA-256 that {LIST} gives; copy the folder again.")
    if other_dtypes := [tensor for tensor, info in checkpoint.infos.items() if info.dtype not in FLOAT_DTYPES]:
        raise CheckpointError(f"{name}: {first_few(other_dtypes)} are not floating-point numbers.")
    return checkpoint


def _hash_file(descriptor: int) -> str:
    total, offset = hashlib.sha256(), 0
    while piece := os.pread(descriptor, 1 << 20, offset):
        total.update(piece)
        offset += len(piece)
    return total.hexdigest()


def _read_tensors(
    files: Mapping[str, Checkpoint], name: str, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, torch.Tensor]:
    """The tensors (*S) of one file, which must have exactly these names and shapes."""
    if not shapes:
        return {}
    if name not in files:
        raise CheckpointError(f"{LIST} does not list {name}, which holds {first_few(shapes)}.")
    file_shapes = {tensor: info.shape for tensor, info in files[name].infos.items()}
    if file_shapes != shapes:
        wrong = next(key for key in sorted({*file_shapes, *shapes}) if file_shapes.get(key) != shapes.get(key))
        expected, actual = shapes.get(wrong, "no such tensor"), file_shapes.get(wrong, "no such tensor")
        raise CheckpointError(f"{name}: the shape of {wrong[:80]!r} must be {expected}; got {actual}.")
    return {tensor: files[name].read(tensor) for tensor in shapes}


def _read_stored(part: Checkpoint | None, task: str, merged: Checkpoint) -> Checkpoint:
    """The stored tensors of one task, each with the shape of the model's tensor that it changes."""
    if part is None:
        return MappingCheckpoint({}, task)
    shapes = {name: info.shape for name, info in convert_naming(merged, "open_clip").infos.items()}
    for name, info in part.infos.items():
        changed_name = name.removesuffix(LEFT).removesuffix(RIGHT)
        if changed_name == name:
            fits = info.shape == shapes.get(name)
        else:
            fits = changed_name in shapes and _has_factors(part, changed_name, shapes[changed_name])
        if not fits:
            raise CheckpointError(
                f"{part.name}: {name[:80]!r} of shape {info.shape} changes no tensor of the model beside it."
            )
    return part


def _has_factors(part: Checkpoint, name: str, shape: tuple[int, ...]) -> bool:
    """Whether both factors of a tensor are stored, and their product has the tensor's shape, as a matrix."""
    left, right = part.infos.get(name + LEFT), part.infos.get(name + RIGHT)
    if left is None or right is None or len(left.shape) != 2 or len(right.shape) != 2:
        return False
    columns = math.prod(shape[1:])
    return left.shape[0] == shape[0] and right.shape[1] == columns and left.shape[1] == right.shape[0]
