"""Models that a benchmark refers to and that are missing, found again below a folder."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from itertools import takewhile
from pathlib import Path

from merging.benchmarks.manifest import MANIFEST
from merging.checkpoints.references import PRETRAINED
from merging.errors import MergingError
from merging.formats.opening import open_checkpoint
from merging.formats.referenced import FOLDER, SUFFIX, move, moved_to, place_of_model
from merging.progress import Meter
from merging.text import first_few, printable


def missing_models(folder: Path) -> list[str]:
    """A sentence if models that a benchmark refers to are not there; none otherwise."""
    return _sentences(folder, _absent(folder))


def _sentences(folder: Path, absent: Mapping[str, Path]) -> list[str]:
    if not absent:
        return []
    names, first = first_few(absent, 10), printable(str(next(iter(absent.values()))), 300)
    which = f"The models {names} are" if len(absent) > 1 else f"The model {names} is"
    missing = f"their files are missing, such as {first}" if len(absent) > 1 else f"{first} is missing"
    return [
        f"{which} not stored in the benchmark, and {missing}. If they lie elsewhere now, name that folder, on Models & "
        f"runs under data or with: python -m merging benchmark find {printable(folder.name)} FOLDER."
    ]


def _absent(folder: Path) -> dict[str, Path]:
    """Name -> where it should be, of the models that are not there."""
    places = {path.stem: Path(place_of_model(str(path))) for path in _references(folder)}
    return {name: place for name, place in places.items() if not place.exists()}


def find_models(folder: Path, below: Path, meter: Meter) -> list[str]:
    """Look below a folder for the missing models and keep where they are; a sentence for the others.

    Candidates have the name that the model's file or folder had, those in folders of the same names come first; a model
    counts if it has the digest that the manifest states.
    """
    absent = _absent(folder)
    meter.total += len(absent)
    left = {
        name: place
        for name, place in absent.items()
        if not _find(folder / FOLDER / f"{name}{SUFFIX}", place, below, meter)
    }
    return _sentences(folder, left)


def _references(folder: Path) -> list[Path]:
    """The files that say where models are, that of the pretrained model first: it names the others' tensors."""
    found = [path for path in sorted((folder / FOLDER).glob(f"*{SUFFIX}")) if place_of_model(str(path)) != str(path)]
    return sorted(found, key=lambda path: path.stem != PRETRAINED)


def _find(path: Path, place: Path, below: Path, meter: Meter) -> bool:
    if (digest := _digest(path)) is None:
        return False
    before = moved_to(path)
    for candidate in sorted(_named(place.name, below), key=lambda one: -_alike(one, place)):
        meter.within(0, "Comparing models", printable(candidate.name, 80))
        move(path, candidate)
        try:
            if open_checkpoint(path).has_digest(digest):
                meter.advance(1, "Comparing models", printable(path.stem, 80))
                return True
        except MergingError:  # it is no model, or one that does not fit
            continue
    move(path, Path(before) if before else None)
    return False


def _named(name: str, below: Path) -> Iterator[Path]:
    """Files and folders of a name, the folder itself among them."""
    if below.name == name:
        yield below
    for place, folders, files in os.walk(below):
        if name in folders or name in files:
            yield Path(place) / name


def _alike(one: Path, other: Path) -> int:
    """How many of the last parts of two paths are the same."""
    pairs = zip(reversed(one.parts), reversed(other.parts), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _digest(path: Path) -> str | None:
    """The digest that the manifest states of a reference's model; None if it states none."""
    try:
        return str(json.loads((path.parent.parent / MANIFEST).read_bytes())["digests"][path.stem])
    except (OSError, ValueError, KeyError, TypeError):
        return None
