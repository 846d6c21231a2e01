"""Data sets in a folder, found by the names of their files and never opened; and names for their tasks."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from merging.benchmarks.folders import is_benchmark
from merging.checkpoints.references import MODELS_PREFIX
from merging.clip.prompt_sets import prompt_keys, simple
from merging.datasets.base import part_of
from merging.datasets.image_folder import SUFFIXES

DEEPEST, MOST = 4, 5000  # levels below the first folder, and entries that are read
SEARCHED = 50  # entries of a folder that are searched for an image or a table
CLASSES = 5  # class folders that are searched
LONGEST = 40
TABLES = {"state.json", "dataset_dict.json"}
ARRAYS, PARQUET = ".npz", ".parquet"


@dataclass(frozen=True, slots=True)
class DataSetLocation:
    """A possible data set; ``place`` is its path from the walked folder's name on, untrusted text."""

    reference: str
    path: Path
    place: str

    @property
    def name(self) -> str:
        """Its folder's name, or its file's without the ending."""
        return self.path.name.removesuffix(ARRAYS).removesuffix(PARQUET)


def in_models_folder(name: str, root: Path) -> list[DataSetLocation]:
    """Data sets in one of the folders of $MERGESCOPE_MODELS; references hold its name, not its path."""
    return _walk(root, name, lambda place: f"{MODELS_PREFIX}{place}")


def at_path(text: str) -> list[DataSetLocation]:
    """Data sets at a path that the user typed: the path itself, or in that folder."""
    try:
        path = Path(text).expanduser().resolve()
        exists = path.exists()
    except (OSError, ValueError, RuntimeError):
        return []
    if not exists:
        return []
    if path.is_file():
        return [DataSetLocation(str(path), path, path.name)] if path.suffix in {ARRAYS, PARQUET} else []
    return _walk(path, path.name, lambda place: str(path / place.partition("/")[2]))


def _walk(root: Path, name: str, refer: Callable[[str], str]) -> list[DataSetLocation]:
    data_sets: list[DataSetLocation] = []
    queue, left = deque([(root, name, 0)]), MOST
    while queue and left > 0:
        folder, place, depth = queue.popleft()
        entries = _entries(folder, left)
        left -= len(entries)
        if is_benchmark(folder):
            continue
        if _is_data_set(folder, entries):
            data_sets.append(DataSetLocation(refer(place), folder, place))
            continue
        for entry in entries:
            inner = f"{place}/{entry.name}"
            if _is_folder(entry):
                queue += [(Path(entry.path), inner, depth + 1)] if depth < DEEPEST else []
            elif entry.name.endswith(ARRAYS):
                data_sets.append(DataSetLocation(refer(inner), Path(entry.path), inner))
    return sorted(data_sets, key=lambda one: one.place)


def _entries(folder: Path, most: int) -> list[os.DirEntry[str]]:
    """The first visible entries of a folder, by name; none if it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            visible = [entry for entry in islice(entries, most) if not entry.name.startswith(".")]
    except OSError:
        return []
    return sorted(visible, key=lambda entry: entry.name)


def _is_data_set(folder: Path, entries: Sequence[os.DirEntry[str]]) -> bool:
    """Whether it has the files of a Hugging Face data set, or class folders with images, perhaps in parts."""
    files = {entry.name for entry in entries if not _is_folder(entry)}
    if files & TABLES or any(name.endswith(PARQUET) for name in files):
        return True
    folders = [Path(entry.path) for entry in entries if _is_folder(entry)]
    if any(path.name == "data" and any(e.name.endswith(PARQUET) for e in _entries(path, SEARCHED)) for path in folders):
        return True
    if folders and all(part_of(path.name) for path in folders):
        folders = [Path(e.path) for path in folders for e in _entries(path, CLASSES) if _is_folder(e)]
    return any(_has_image(path) for path in folders[:CLASSES])


def _has_image(folder: Path) -> bool:
    return any(entry.name.lower().endswith(SUFFIXES) for entry in _entries(folder, SEARCHED))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether it is a folder; links to folders are not followed."""
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def task_key(name: str, taken: Iterable[str] = ()) -> str:
    """A valid name for a task, made from that of a data set and numbered if it is taken."""
    stem = re.sub(r"[^a-z0-9_-]+", "_", name.casefold()).strip("_-")[: LONGEST - 3] or "task"
    known_keys, free, number = set(taken), stem, 2
    while free in known_keys:
        free, number = f"{stem}_{number}", number + 1
    return free


def alike(name: str, among: Iterable[str]) -> str | None:
    """The name that differs only in punctuation and case; None if there is none."""
    return next((other for other in among if simple(other) == simple(name)), None)


def published(name: str) -> str | None:
    """The key of the papers' prompts for a data set of that name; None if there are none."""
    return alike(name, prompt_keys())
