"""Folders with modules: files for the tasks and the router, a list of them with their hashes, and the merged model.

A folder may come from anywhere. It names no code: its key is looked up among the registered adapts, the names of its
files follow from the names of its tasks, and every tensor has the shape that the adapt's parameters and the model give.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import reprlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import torch

from merging.checkpoints.architecture import Architecture
from merging.checkpoints.checkpoint import Checkpoint, MappingCheckpoint
from merging.checkpoints.views import identity_view, in_naming
from merging.errors import CheckpointError, MergingError, StoreError
from merging.files.atomic import file_hash, publish, temporary_beside
from merging.files.disk import sync_all
from merging.files.paths import inside, open_regular
from merging.files.records import write_json
from merging.files.strict_json import parse
from merging.formats.opening import open_path
from merging.formats.safetensors import SafetensorsCheckpoint, SafetensorsWriter
from merging.methods import registry
from merging.methods.adapting import Learned, Sizes
from merging.modules.card import card
from merging.modules.mixed_tower import LEFT, RIGHT
from merging.modules.modules import ROUTER, Modules
from merging.text import first_few

FOLDER, LIST, VERSION = "modules", "modules.json", 1
MODEL = "model.safetensors"
BASE = "base"  # the pretrained model's tensors, where the adapt mixes on them
MOST_LIST, MOST_TASKS, LONGEST = 1 << 20, 1000, 100  # bytes of the list; tasks; characters of a name in a file's name
PIECE = 1 << 18  # scalars that are copied at a time
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
FIELDS = {"version", "key", "params", "tasks", "model", "architecture", "files"}


def merged_digest(merged: Checkpoint) -> str:
    """The digest of a merged model's visual tower, the same under the names of every library."""
    return in_naming(merged, "open_clip").digest


def file_names(tasks: tuple[str, ...]) -> dict[str, str]:
    """{task: the name of its file}: quoted, not too long, and distinct on every disk."""
    used, names = {ROUTER, BASE}, {}
    for task in tasks:
        name = quote(task, safe=" ")[:LONGEST].strip(" .") or "_"
        while name.casefold() in used:
            name += "_"
        used.add(name.casefold())
        names[task] = f"{FOLDER}/{name}.safetensors"
    return names


# --- writing ---------------------------------------------------------------------------------------------------------


def save(modules: Modules, folder: Path) -> None:
    """Write the merged model, the modules, and a card that says how to load them; all of the folder or nothing.

    Raises:
        StoreError: the folder exists already, or cannot be written.
    """
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise StoreError(f"{folder} exists already; choose another folder for the modules.")
    with temporary_beside(folder) as partial:
        model = in_naming(modules.merged, "open_clip")
        _copy(partial / MODEL, model, {"architecture": stated(modules.architecture)})
        write(modules, partial)
        (partial / "README.md").write_text(card(modules), "utf-8")
        sync_all(partial)
        partial.chmod(0o755)
        if not publish(partial, folder.absolute()):
            raise StoreError(f"{folder} was written to by another process meanwhile; choose another folder.")


def write(modules: Modules, folder: Path) -> list[str]:
    """Write the modules and their list beside a merged model that is there already; gives the names of the files."""
    (folder / FOLDER).mkdir(exist_ok=True)
    files = {}
    for name, part in parts(modules):
        _copy(folder / name, part, {})
        files[name] = file_hash(folder / name)
    entry = {
        "version": VERSION,
        "key": modules.key,
        "params": modules.params.plain(),
        "tasks": list(modules.tasks),
        "model": merged_digest(modules.merged),
        "architecture": json.loads(stated(modules.architecture)),
        "files": files,
    }
    write_json(folder / LIST, entry)
    return [*files, LIST]


def parts(modules: Modules) -> Iterator[tuple[str, Checkpoint]]:
    """Every file's name and its tensors: what belongs to each task, the router, the pretrained model's tensors."""
    for task, name in file_names(modules.tasks).items():
        own = MappingCheckpoint(modules.learned.own.get(task, {}), task)
        part = modules.stored.get(task, own)
        if part.infos:
            yield name, part
    if modules.learned.router:
        yield f"{FOLDER}/{ROUTER}.safetensors", MappingCheckpoint(modules.learned.router, ROUTER)
    if modules.base is not None:
        yield f"{FOLDER}/{BASE}.safetensors", modules.base


def stated(architecture: Architecture) -> str:
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


# --- reading ---------------------------------------------------------------------------------------------------------


def load_modules(folder: Path | str, device: str = "cpu") -> Modules:
    """The modules in a folder that ``Modules.save`` or an export wrote, with the merged model beside them.

    Raises:
        CheckpointError: a file is missing, damaged or not what the list says, or the model beside it is another one.
    """
    from merging.devices import choose_device

    path = Path(folder)
    if not (path / LIST).exists():
        raise CheckpointError(f"{path.name} has no {LIST}: it is no folder with modules. Give the folder of an export.")
    return read(path, open_merged(path)).on(choose_device(device))


def open_merged(folder: Path) -> Checkpoint:
    """The merged model in a folder."""
    from merging.formats.opening import open_checkpoint

    return open_checkpoint(open_path(folder, "merged", str(folder)), "merged")


def read(folder: Path, merged: Checkpoint) -> Modules:
    """The modules in a folder, on a merged model that may lie elsewhere.

    Raises:
        CheckpointError: as ``load_modules``.
    """
    entry = _listed(folder)
    try:
        method = registry.adapt(entry["key"])
        params = method.params.build(entry["params"], method.key)
    except MergingError as error:
        raise CheckpointError(f"{LIST}: {error}") from None
    tasks = tuple(entry["tasks"])
    if (digest := merged_digest(merged)) != entry["model"]:
        raise CheckpointError(
            f"The modules were made for another model: {LIST} gives the digest {entry['model'][:12]}…, the model beside "
            f"it has {digest[:12]}…. Take the model of the same run."
        )
    view = identity_view(merged)
    view.metadata = {**merged.metadata, "architecture": json.dumps(entry["architecture"])}
    architecture = Architecture.of(view)
    files = {name: _opened(folder, name, sha) for name, sha in entry["files"].items()}
    shapes = method.shapes(params, Sizes(len(tasks), architecture.layers, architecture.width, architecture.embed_dim))
    names = file_names(tasks)
    stores = method.stores is not None
    router = _tensors(files, f"{FOLDER}/{ROUTER}.safetensors", shapes.router)
    own = {} if stores else {task: _tensors(files, name, shapes.own) for task, name in names.items()}
    stored = {task: _stored(files.get(name), task, merged) for task, name in names.items()} if stores else {}
    base = files.get(f"{FOLDER}/{BASE}.safetensors")
    return Modules(method.key, params, tasks, Learned(router, own), merged, architecture, stored, base)


def _listed(folder: Path) -> dict[str, Any]:
    """The list in a folder, every field of the right kind."""
    descriptor = open_regular(inside(folder / LIST))
    try:
        size = os.fstat(descriptor).st_size
        if size > MOST_LIST:
            raise CheckpointError(f"{LIST} has {size:,} bytes, more than a list of modules has; refused.")
        entry = parse(os.pread(descriptor, size, 0), LIST)
    finally:
        os.close(descriptor)
    if entry.get("version") != VERSION or set(entry) != FIELDS:
        raise CheckpointError(
            f"{LIST} is no list of modules of version {VERSION}: it has {first_few(sorted(map(str, entry)))}, "
            f"expected are {', '.join(sorted(FIELDS))}."
        )
    tasks, files = entry["tasks"], entry["files"]
    if not (isinstance(tasks, list) and all(isinstance(task, str) for task in tasks) and len(set(tasks)) == len(tasks)):
        raise CheckpointError(f"{LIST}: tasks is a list of different names; got {reprlib.repr(tasks)}.")
    if not 0 < len(tasks) <= MOST_TASKS:
        raise CheckpointError(f"{LIST} names {len(tasks):,} tasks; from 1 to {MOST_TASKS:,} are read.")
    allowed = {*file_names(tuple(tasks)).values(), *(f"{FOLDER}/{name}.safetensors" for name in (ROUTER, BASE))}
    if not isinstance(files, dict) or not all(isinstance(sha, str) for sha in files.values()):
        raise CheckpointError(f"{LIST}: files is a mapping of name to SHA-256; got {reprlib.repr(files)}.")
    if foreign := sorted(set(files) - allowed):
        raise CheckpointError(f"{LIST} names files that belong to none of its tasks: {first_few(foreign)}.")
    texts = all(isinstance(entry[name], str) for name in ("key", "model"))
    if not texts or not all(isinstance(entry[name], dict) for name in ("params", "architecture")):
        raise CheckpointError(f"{LIST}: key and model are texts, params and architecture mappings.")
    return entry


def _opened(folder: Path, name: str, sha: str) -> SafetensorsCheckpoint:
    """A listed file, after its hash was compared."""
    descriptor = open_regular(inside(folder / name))  # what is hashed is what is read
    opened = SafetensorsCheckpoint(descriptor, name, name, name)
    if _hash(descriptor) != sha:
        raise CheckpointError(f"{name} does not have the SHA-256 that {LIST} gives; copy the folder again.")
    if odd := [tensor for tensor, info in opened.infos.items() if info.dtype not in FLOATS]:
        raise CheckpointError(f"{name}: {first_few(odd)} are no floating-point numbers.")
    return opened


def _hash(descriptor: int) -> str:
    total, at = hashlib.sha256(), 0
    while piece := os.pread(descriptor, 1 << 20, at):
        total.update(piece)
        at += len(piece)
    return total.hexdigest()


def _tensors(
    files: Mapping[str, Checkpoint], name: str, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, torch.Tensor]:
    """The tensors of one file, which must be these."""
    if not shapes:
        return {}
    if name not in files:
        raise CheckpointError(f"{LIST} does not list {name}, which holds {first_few(shapes)}.")
    having = {tensor: info.shape for tensor, info in files[name].infos.items()}
    if having != shapes:
        odd = next(key for key in sorted({*having, *shapes}) if having.get(key) != shapes.get(key))
        expected, got = shapes.get(odd, "no such tensor"), having.get(odd, "no such tensor")
        raise CheckpointError(f"{name}: of {odd[:80]!r} the shape {expected} was expected, and there is {got}.")
    return {tensor: files[name].read(tensor) for tensor in shapes}


def _stored(part: Checkpoint | None, task: str, merged: Checkpoint) -> Checkpoint:
    """What is stored of one task, each tensor of the shape of the model's tensor that it changes."""
    if part is None:
        return MappingCheckpoint({}, task)
    shapes = {name: info.shape for name, info in in_naming(merged, "open_clip").infos.items()}
    for name, info in part.infos.items():
        stem = name.removesuffix(LEFT).removesuffix(RIGHT)
        if stem == name:
            fits = info.shape == shapes.get(name)
        else:
            fits = stem in shapes and _is_factor(part, stem, shapes[stem])
        if not fits:
            raise CheckpointError(
                f"{part.name}: {name[:80]!r} of shape {info.shape} changes no tensor of the model beside it."
            )
    return part


def _is_factor(part: Checkpoint, stem: str, shape: tuple[int, ...]) -> bool:
    """Whether two factors are stored whose product has the shape of a tensor, as a matrix."""
    left, right = part.infos.get(stem + LEFT), part.infos.get(stem + RIGHT)
    if left is None or right is None or len(left.shape) != 2 or len(right.shape) != 2:
        return False
    columns = math.prod(shape[1:])
    return left.shape[0] == shape[0] and right.shape[1] == columns and left.shape[1] == right.shape[0]
