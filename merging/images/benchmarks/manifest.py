"""The manifest that ``benchmark make`` writes: the sha-256 of every file, compared before a file is used."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from merging.base.errors import TaskError
from merging.base.files.atomic import DamagedError, file_hash, verify_file
from merging.base.files.paths import path_fingerprint
from merging.base.text import printable
from merging.models.formats.model_sources import ModelRef

MANIFEST = "manifest.json"
MADE_BY = "mergescope benchmark make"
REBUILD_HINT = "Make the benchmark again, on Models & runs or with `benchmark make … --overwrite`."


def has_manifest(folder: Path) -> bool:
    """Whether a folder is a benchmark that ``make`` has written."""
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(manifest, dict) and manifest.get("made_by") == MADE_BY


def altered(folder: Path) -> list[str]:
    """Files of a benchmark's manifest that are missing or changed. Raises TaskError if it has no manifest."""
    try:
        files = json.loads((folder / MANIFEST).read_bytes())["files"]
        return [name for name, entry in files.items() if not _is_unchanged(folder / name, str(entry["sha256"]))]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise TaskError(f"{folder.name}/ has no {MANIFEST} that can be read.") from None


def _is_unchanged(path: Path, sha256: str) -> bool:
    return path.is_file() and file_hash(path) == sha256


def checked_path(folder: Path, name: str) -> Path:
    """The path of a benchmark's file, after a check against the manifest; other folders are not checked.

    Raises:
        TaskError: the file has changed, or the manifest is damaged.
    """
    try:
        if name in (files := _read_manifest(folder).get("files", {})):
            return verify_file(folder, files, name)
    except (DamagedError, TypeError) as damage:
        raise _make_damage_error(folder, str(damage)) from None
    return folder / name


def first_damage(folder: Path) -> str:
    """A sentence on the first damaged file of a benchmark; empty if none is. A process reads each file once."""
    try:
        for name in _read_manifest(folder).get("files", {}):
            checked_path(folder, name)
    except TaskError as error:
        return str(error)
    return ""


def check_model(model: ModelRef, digest: str) -> None:
    """Raise TaskError if the model is in a benchmark with a manifest that states another digest."""
    if model.is_on_hub or model.path.parent.name != "models":
        return
    path = model.path
    folder = path.parent.parent
    if _read_manifest(folder).get("digests", {}).get(path.stem, digest) != digest:
        name = f"models/{path.name}"
        raise _make_damage_error(folder, f"{name} has other weights than those that were written")


def _read_manifest(folder: Path) -> Mapping[str, Any]:
    """The manifest of a benchmark that ``benchmark make`` wrote; empty for other folders.

    Raises:
        TaskError: the manifest cannot be read.
    """
    try:
        return _parse_manifest(folder, path_fingerprint(folder / MANIFEST))
    except OSError:
        return {}


@lru_cache(maxsize=16)  # a sweep asks for each model of each point
def _parse_manifest(folder: Path, state: tuple[int, ...]) -> Mapping[str, Any]:
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
    except (ValueError, RecursionError):
        raise _make_damage_error(folder, f"{MANIFEST} cannot be read") from None
    return manifest if isinstance(manifest, dict) and manifest.get("made_by") == MADE_BY else {}


def _make_damage_error(folder: Path, reason: str) -> TaskError:
    return TaskError(f"The benchmark {printable(folder.name)} is damaged: {reason}. {REBUILD_HINT}")
