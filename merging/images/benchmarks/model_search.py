"""Models that a benchmark refers to and that are missing, found again below a folder."""

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
    MOST,
    SUFFIX,
    find_command,
    is_reference,
    model_path,
    open_at,
    record_path,
)
from merging.models.model_references import PRETRAINED

COMPARING = "Comparing models"
MISSING = ("is missing", "are missing")
OTHERS = ("is not the one that it was made of", "are not the ones that it was made of")


@dataclass
class _ModelPaths:
    """Where the models of a benchmark should be, by the files that say so, and what is wrong with other such files."""

    paths: dict[Path, str] = field(default_factory=dict)  # that of the pretrained model first: it names the tensors
    damaged: dict[Path, str] = field(default_factory=dict)


def missing_models(folder: Path) -> list[str]:
    """Sentences if models that a benchmark refers to are not there, or it does not say where; none otherwise.

    Models that are there are not read.
    """
    known = _read_model_paths(folder)
    return _problems(folder, known, {path.stem: place for path, place in known.paths.items() if not _exists(place)})


def find_models(folder: Path, search_folder: Path, meter: Meter) -> list[str]:
    """Look below a folder for the missing models and keep where they are; sentences for the others.

    A model that is there without having the digest that the manifest states is missing, too. Candidates have the name
    that the model's file or folder had, those in folders of the same names come first, and what counts is the digest.
    Paths that are not UTF-8 are left out, since no file of JSON can hold them. Raises Cancelled as the meter does.
    """
    known = _read_model_paths(folder)
    named = _named({name for place in known.paths.values() for name in _names(place)}, search_folder, meter)
    candidates = {path: _candidates(place, named) for path, place in known.paths.items()}
    meter.total += sum(_size(Path(place)) for place in known.paths.values())
    meter.total += sum(_size(one) for some in candidates.values() for one in some)
    left: dict[str, str] = {}
    for path, place in known.paths.items():
        if not _restore_path(path, place, candidates[path], meter):
            left[path.stem] = place
    if PRETRAINED in {*left, *(path.stem for path in known.damaged)}:  # others may fit: nothing names their tensors
        left = {name: place for name, place in left.items() if name == PRETRAINED or not _exists(place)}
    return _problems(folder, known, left)


def _exists(place: str) -> bool:
    return exists(place)  # noqa: PTH110 - Path.exists raises for a path that no disk can have


def _problems(folder: Path, known: _ModelPaths, left: Mapping[str, str]) -> list[str]:
    """Sentences about what does not say where a model is, and about models by name, with their places."""
    gone = {name: place for name, place in left.items() if not _exists(place)}
    others = {name: place for name, place in left.items() if name not in gone}
    return [*known.damaged.values(), *_sentences(folder, gone, MISSING), *_sentences(folder, others, OTHERS)]


def _sentences(folder: Path, places: Mapping[str, str], states: tuple[str, str]) -> list[str]:
    """A sentence about models, by name, whose files are in a state: in words of one, and of several."""
    if not places:
        return []
    names, first = first_few(places, 10), printable(next(iter(places.values())), 300)
    which = f"The models {names} are" if len(places) > 1 else f"The model {names} is"
    state = f"their files {states[1]}, such as {first}" if len(places) > 1 else f"{first} {states[0]}"
    elsewhere = "they lie" if len(places) > 1 else "it lies"
    return [
        f"{which} not stored in the benchmark, and {state}. If {elsewhere} elsewhere now, name that folder, on Models "
        f"& runs under data or with: {find_command(folder)}."
    ]


def _read_model_paths(folder: Path) -> _ModelPaths:
    """What the files say that stand in place of models."""
    known = _ModelPaths()
    for path in sorted((folder / FOLDER).glob(f"*{SUFFIX}"), key=lambda path: (path.stem != PRETRAINED, path.name)):
        with contextlib.suppress(OSError), path.open("rb") as file:
            if is_reference(path, raw := file.read(MOST + 1)):
                try:
                    known.paths[path] = model_path(path, raw)
                except CheckpointError as error:
                    known.damaged[path] = str(error)
    return known


def _restore_path(path: Path, place: str, candidates: Sequence[Path], meter: Meter) -> bool:
    """Whether a reference's model is where it should be or at one of these paths, which is then noted."""
    digest = _digest(path)
    if _exists(place) and (digest is None or _matches(path, Path(place), digest, meter)):
        meter.advance(sum(map(_size, candidates)), COMPARING)
        return True
    left = list(candidates)
    while left and digest is not None:
        candidate = left.pop(0)
        if _matches(path, candidate, digest, meter):
            record_path(path, candidate)
            meter.advance(sum(map(_size, left)), COMPARING)
            return True
    return False


def _matches(path: Path, candidate: Path, digest: str, meter: Meter) -> bool:
    """Whether a reference's model would have a digest if it were at a path."""
    size, read, name = _size(candidate), 0, printable(candidate.name, 80)

    def on_bytes(count: int) -> None:
        nonlocal read
        read += count
        meter.report_part(min(read, size), COMPARING, name)

    on_bytes(0)
    same = False
    try:
        with open_at(path, candidate):
            model = open_checkpoint(path)
            same = model.content_digest(on_bytes) == digest
    except Cancelled:
        raise
    except (MergingError, OSError, ValueError):  # it is no model, or one that does not fit
        pass
    meter.advance(size, COMPARING, name)
    return same


def _named(names: set[str], below: Path, meter: Meter) -> dict[str, list[Path]]:
    """Files and folders of some names, by name, the folder itself among them."""
    named: dict[str, list[Path]] = {name: [] for name in names}
    for path in _walked(below, meter) if names else ():
        if path.name in named and is_utf8(path):
            named[path.name].append(path)
    return named


def _walked(below: Path, meter: Meter) -> Iterator[Path]:
    yield below
    for place, folders, files in os.walk(below):
        meter.check()
        yield from (Path(place, name) for name in (*folders, *files))


def _candidates(place: str, named: Mapping[str, list[Path]]) -> list[Path]:
    """Paths of the name of a model, without its own, the most alike first."""
    paths = {path for name in _names(place) for path in named[name] if str(path) != place}
    return sorted(paths, key=lambda path: (-_count_common_parts(str(path), place), path))


def _names(place: str) -> set[str]:
    """The last part of a path, which may have been written on Windows."""
    return {Path(place).name, PureWindowsPath(place).name} - {""}


def _count_common_parts(one: str, other: str) -> int:
    """How many of the last parts of two paths are the same."""
    pairs = zip(reversed(PureWindowsPath(one).parts), reversed(PureWindowsPath(other).parts), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _size(path: Path) -> int:
    """Bytes of a file, or of the files in a folder; 0 if there are none."""
    with contextlib.suppress(OSError, ValueError):
        if path.is_dir():
            return sum(one.stat().st_size for one in path.iterdir() if one.is_file())
        return path.stat().st_size
    return 0


def _digest(path: Path) -> str | None:
    """The digest that the manifest states of a reference's model; None if it states none."""
    try:
        return str(json.loads((path.parent.parent / MANIFEST).read_bytes())["digests"][path.stem])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
