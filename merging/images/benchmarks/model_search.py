"""Searches a folder for the missing models of a benchmark, and stores their new paths.

A benchmark can have references in place of models: small files with the path of a model.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from os.path import exists
from pathlib import Path, PureWindowsPath

from merging.base.errors import Cancelled, CheckpointError, MergingError
from merging.base.files.paths import is_utf8
from merging.base.progress import Meter
from merging.base.text import first_few, printable
from merging.images.benchmarks.manifest import MANIFEST
from merging.models.formats.model_sources import open_checkpoint
from merging.models.formats.referenced_model import (
    FOLDER,
    MAX_REFERENCE_BYTES,
    SUFFIX,
    find_command,
    is_reference,
    model_path,
    open_at,
    record_path,
)
from merging.models.model_references import PRETRAINED

COMPARING_PHASE = "Comparing models"
MISSING_PHRASES = ("is missing", "are missing")
CHANGED_PHRASES = ("is not the model that it was made from", "are not the models that it was made from")


@dataclass
class _ModelPaths:
    """{reference file: path of its model}, and {reference file: problem} of damaged ones, in a benchmark."""

    # The pretrained model first: the experts' tensors get its names, which their digests depend on.
    paths: dict[Path, str] = field(default_factory=dict)
    damaged: dict[Path, str] = field(default_factory=dict)


def describe_missing_models(folder: Path) -> list[str]:
    """Sentences on a benchmark's references that are damaged or whose model is missing; empty if there are none.

    Existing models are not read.
    """
    model_paths = _read_model_paths(folder)
    return _describe_problems(
        folder, model_paths, {path.stem: model for path, model in model_paths.paths.items() if not _exists(model)}
    )


def find_models(folder: Path, search_folder: Path, meter: Meter) -> list[str]:
    """Search a folder for missing models and store their paths; sentences on models that were not found.

    A model with another digest than the manifest states is missing, too. Candidates have the name of the model's former
    file or folder, those in folders of the same names come first, and the digest decides. Paths that are not UTF-8 are
    left out, since JSON cannot hold them. Raises Cancelled as the meter does.
    """
    model_paths = _read_model_paths(folder)
    paths_by_name = _find_named(
        {name for model in model_paths.paths.values() for name in _split_names(model)}, search_folder, meter
    )
    candidates = {path: _sort_candidates(model, paths_by_name) for path, model in model_paths.paths.items()}
    meter.total += sum(_count_bytes(Path(model)) for model in model_paths.paths.values())
    meter.total += sum(_count_bytes(path) for paths in candidates.values() for path in paths)
    not_found: dict[str, str] = {}
    for path, model in model_paths.paths.items():
        if not _restore_path(path, model, candidates[path], meter):
            not_found[path.stem] = model
    # Without the pretrained model, whose names the tensors get, the digests of existing experts are unknown.
    if PRETRAINED in {*not_found, *(path.stem for path in model_paths.damaged)}:
        not_found = {name: model for name, model in not_found.items() if name == PRETRAINED or not _exists(model)}
    return _describe_problems(folder, model_paths, not_found)


def _exists(path: str) -> bool:
    return exists(path)  # noqa: PTH110 - Path.exists raises for a path that no disk can have


def _describe_problems(folder: Path, model_paths: _ModelPaths, not_found: Mapping[str, str]) -> list[str]:
    """Sentences on damaged references, and on models that were not found, {name: path}."""
    missing = {name: path for name, path in not_found.items() if not _exists(path)}
    changed = {name: path for name, path in not_found.items() if name not in missing}
    return [
        *model_paths.damaged.values(),
        *_describe_models(folder, missing, MISSING_PHRASES),
        *_describe_models(folder, changed, CHANGED_PHRASES),
    ]


def _describe_models(folder: Path, models: Mapping[str, str], states: tuple[str, str]) -> list[str]:
    """A sentence on models, {name: path}, in one state; ``states`` has its words for one model and for several."""
    if not models:
        return []
    names, first = first_few(models, 10), printable(next(iter(models.values())), 300)  # at most 300 characters
    which = f"The models {names} are" if len(models) > 1 else f"The model {names} is"
    state = f"their files {states[1]}, such as {first}" if len(models) > 1 else f"{first} {states[0]}"
    they_are = "they are" if len(models) > 1 else "it is"
    return [
        f"{which} not stored in the benchmark, and {state}. If {they_are} in another folder now, name it on Models "
        f"& runs under data or with: {find_command(folder)}."
    ]


def _read_model_paths(folder: Path) -> _ModelPaths:
    """The models' paths in the references of a benchmark, and the references that are damaged."""
    model_paths = _ModelPaths()
    for path in sorted((folder / FOLDER).glob(f"*{SUFFIX}"), key=lambda path: (path.stem != PRETRAINED, path.name)):
        with contextlib.suppress(OSError), path.open("rb") as file:
            if is_reference(path, raw := file.read(MAX_REFERENCE_BYTES + 1)):
                try:
                    model_paths.paths[path] = model_path(path, raw)
                except CheckpointError as error:
                    model_paths.damaged[path] = str(error)
    return model_paths


def _restore_path(path: Path, model: str, candidates: Sequence[Path], meter: Meter) -> bool:
    """Whether a reference's model is at its path or at one of the candidates, whose path is then stored."""
    digest = _read_digest(path)
    if _exists(model) and (digest is None or _matches(path, Path(model), digest, meter)):
        meter.advance(sum(map(_count_bytes, candidates)), COMPARING_PHASE)
        return True
    remaining = list(candidates)
    while remaining and digest is not None:
        candidate = remaining.pop(0)
        if _matches(path, candidate, digest, meter):
            record_path(path, candidate)
            meter.advance(sum(map(_count_bytes, remaining)), COMPARING_PHASE)
            return True
    return False


def _matches(path: Path, candidate: Path, digest: str, meter: Meter) -> bool:
    """Whether a reference's model has the digest if it is opened at the candidate's path."""
    size, bytes_read, name = _count_bytes(candidate), 0, printable(candidate.name, 80)

    def on_bytes(count: int) -> None:
        nonlocal bytes_read
        bytes_read += count
        meter.report_part(min(bytes_read, size), COMPARING_PHASE, name)

    on_bytes(0)
    is_equal = False
    try:
        with open_at(path, candidate):
            model = open_checkpoint(path)
            is_equal = model.content_digest(on_bytes) == digest
    except Cancelled:
        raise
    except (MergingError, OSError, ValueError):  # the candidate is not a model, or does not fit
        pass
    meter.advance(size, COMPARING_PHASE, name)
    return is_equal


def _find_named(names: set[str], folder: Path, meter: Meter) -> dict[str, list[Path]]:
    """{name: files and folders of that name below a folder}, including the folder itself."""
    paths_by_name: dict[str, list[Path]] = {name: [] for name in names}
    for path in _walk(folder, meter) if names else ():
        if path.name in paths_by_name and is_utf8(path):
            paths_by_name[path.name].append(path)
    return paths_by_name


def _walk(folder: Path, meter: Meter) -> Iterator[Path]:
    """A folder and all files and folders below it."""
    yield folder
    for parent, folders, files in os.walk(folder):
        meter.check()
        yield from (Path(parent, name) for name in (*folders, *files))


def _sort_candidates(model: str, paths_by_name: Mapping[str, list[Path]]) -> list[Path]:
    """Other paths with the name of a model's path, the most similar first."""
    paths = {path for name in _split_names(model) for path in paths_by_name[name] if str(path) != model}
    return sorted(paths, key=lambda path: (-_count_common_parts(str(path), model), path))


def _split_names(path: str) -> set[str]:
    """The possible last parts of a path that may have been written on Windows."""
    return {Path(path).name, PureWindowsPath(path).name} - {""}


def _count_common_parts(first_path: str, second_path: str) -> int:
    """How many of the last parts of two paths are the same."""
    pairs = zip(reversed(PureWindowsPath(first_path).parts), reversed(PureWindowsPath(second_path).parts), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _count_bytes(path: Path) -> int:
    """Bytes of a file, or of the files in a folder; 0 if there are none."""
    with contextlib.suppress(OSError, ValueError):
        if path.is_dir():
            return sum(file.stat().st_size for file in path.iterdir() if file.is_file())
        return path.stat().st_size
    return 0


def _read_digest(path: Path) -> str | None:
    """The digest that the manifest states of a reference's model; None if it states none."""
    try:
        return str(json.loads((path.parent.parent / MANIFEST).read_bytes())["digests"][path.stem])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
