"""Benchmark folders that users can choose in the app, and their keys in links, which do not reveal paths.

A key is "default", "bundled" or "bundled:TEAM" for a bundled benchmark, "own:NAME" for a benchmark that was built in
the store, "models:FOLDER/PATH" for one in a folder of $MERGESCOPE_MODELS, or "pack:DIGEST" for one that an opened pack
describes.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from merging.base import settings
from merging.base.errors import CheckpointError
from merging.models import model_references
from merging.models.model_references import BENCHMARKS, MODELS_PREFIX, OWN_PREFIX
from merging.tasks.pack_folders import list_pack_folders

TASKS_FILE, HEADS_FILE = "tasks.json", "heads.safetensors"  # files of every benchmark folder
TEXT_TOWER = (
    "text_tower.safetensors"  # the pretrained model's, for exports; only in benchmarks made from a whole CLIP model
)
SERVER = "default"  # the key of the benchmark that the server was started on
BUNDLED = "bundled"  # the key of the bundled benchmark with its first team of experts
PACK_PREFIX = "pack:"
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")


def is_benchmark(folder: Path) -> bool:
    """Whether a folder looks like a benchmark; only opening it shows whether it is one."""
    return (folder / TASKS_FILE).is_file() and (folder / HEADS_FILE).is_file()


def resolve_benchmark(named_folder: str) -> Path:
    """The benchmark folder that another program names, or this process's own if it does not exist on this machine."""
    return Path(named_folder) if is_benchmark(Path(named_folder)) else settings.benchmark_folder()


def state_of(folder: Path) -> tuple[int, ...]:
    """Sizes, times and inodes of a benchmark's files, which change when it is made again; empty if there is none."""
    try:
        stats = [os.stat(f"{folder}/{name}") for name in (TASKS_FILE, HEADS_FILE)]  # noqa: PTH116 - pages ask all the time
    except OSError:
        return ()
    return tuple(number for stat in stats for number in (stat.st_size, stat.st_mtime_ns, stat.st_ino))


def own_folder(name: str, root: Path) -> Path:
    """The folder of the user's benchmark of that name in the store at ``root``."""
    return root.resolve() / BENCHMARKS / name


def list_bundled() -> dict[str, Path]:
    """{key: folder} of the bundled benchmarks, one for each team of experts that is installed."""
    folders = {f"{BUNDLED}:{team}" if team else BUNDLED: folder for team, folder in settings.BUNDLED_TEAMS.items()}
    server = settings.benchmark_folder()
    return {SERVER if folder == server else key: folder for key, folder in folders.items() if is_benchmark(folder)}


def list_built(root: Path) -> dict[str, Path]:
    """{key: folder} of the benchmarks that were built in the store at ``root``."""
    try:
        folders = sorted((root.resolve() / BENCHMARKS).iterdir())
    except OSError:
        return {}
    return {f"{OWN_PREFIX}{path.name}": path for path in folders if NAME.fullmatch(path.name) and is_benchmark(path)}


def list_packed(root: Path) -> dict[str, Path]:
    """{key: folder} of the benchmarks that opened packs describe, without images and heads."""
    folders = [path for pack in list_pack_folders(root) for path in sorted((pack / BENCHMARKS).glob("*"))]
    return {f"{PACK_PREFIX}{path.name}": path for path in folders if (path / TASKS_FILE).is_file()}


def find_folder(key: str, root: Path) -> Path | None:
    """The benchmark folder of a key; None if there is none."""
    if key == SERVER:
        return settings.benchmark_folder()
    if key.partition(":")[0] == BUNDLED:
        folder = settings.BUNDLED_TEAMS.get(key.partition(":")[2])
        return folder if folder is not None and is_benchmark(folder) else None
    if key.startswith((OWN_PREFIX, PACK_PREFIX)):
        return (list_built(root) | list_packed(root)).get(key)
    if not key.startswith(MODELS_PREFIX):
        return None
    try:
        folder = model_references.locate(key)
    except CheckpointError:
        return None
    return folder.resolve() if is_benchmark(folder) else None


def key_of(folder: Path, root: Path) -> str:
    """The key of a folder in links; empty if users cannot choose it."""
    if folder == settings.benchmark_folder():
        return SERVER
    for key, path in (list_bundled() | list_built(root) | list_packed(root)).items():
        if path.resolve() == folder.resolve():
            return key
    for name, models_folder in settings.models_folders().items():
        if folder.resolve() == models_folder:
            return f"{MODELS_PREFIX}{name}"
        if folder.resolve().is_relative_to(models_folder):
            return f"{MODELS_PREFIX}{name}/{folder.resolve().relative_to(models_folder).as_posix()}"
    return ""
