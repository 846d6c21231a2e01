"""Data sets in a folder, found by the names of their files without opening them, and names for their tasks.

A configuration is one of several variants of a data set on the Hub, in a folder of its own. The parts of a data set are
its splits, such as train and test.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from merging.images.benchmarks.benchmark_folders import is_benchmark
from merging.images.data_sets.class_list import CLASS_NAMES_FILE
from merging.images.data_sets.hub_cache import LIBRARY, is_repository, title
from merging.images.data_sets.image_folder import SUFFIXES
from merging.images.data_sets.labeled_images import part_of_name
from merging.images.data_sets.table_layouts import INFO, SPLITS_FILE, STATE
from merging.images.prompt_sets import list_prompt_keys, simplify_name
from merging.models.model_references import MODELS_PREFIX
from merging.sharing.catalog.folder_walk import (
    Entries,
    is_folder,
    list_visible_entries,
    resolve_typed_path,
    walk_folders,
)

MAX_SEARCHED_ENTRIES = 50  # of a folder, for an image or a table
MAX_SEARCHED_CLASSES = 5  # class folders of a data set
MAX_KEY_CHARACTERS = 40
TABLE_FILES = {STATE, SPLITS_FILE}  # the library ``datasets`` writes them beside its tables
ARRAYS_SUFFIX, PARQUET_SUFFIX, TAR_SUFFIX, ARROW_SUFFIX = ".npz", ".parquet", ".tar", ".arrow"


@dataclass(frozen=True, slots=True)
class DataSetLocation:
    """A possible data set; ``listed_path`` begins with the listed folder's name and is untrusted text."""

    reference: str
    path: Path
    listed_path: str

    @property
    def name(self) -> str:
        """The name of its folder, of its file without the ending, or, in a cache of the Hub, of the data set."""
        name = title(self.path).rpartition("/")[2]
        return name.removesuffix(ARRAYS_SUFFIX).removesuffix(PARQUET_SUFFIX).removesuffix(TAR_SUFFIX)


def list_in_models_folder(name: str, root: Path) -> list[DataSetLocation]:
    """Data sets in one of the folders of $MERGESCOPE_MODELS; references contain the folder's name, not its path."""
    return _walk_data_sets(root, name, lambda listed_path: f"{MODELS_PREFIX}{listed_path}")


def list_at_path(text: str) -> list[DataSetLocation]:
    """Data sets at a path that the user typed: the path itself, or data sets in that folder."""
    path = resolve_typed_path(text)
    if path is None or not path.exists():
        return []
    if path.is_file():
        return (
            [DataSetLocation(str(path), path, path.name)]
            if path.suffix in {ARRAYS_SUFFIX, PARQUET_SUFFIX, TAR_SUFFIX}
            else []
        )
    return _walk_data_sets(path, path.name, lambda listed_path: str(path / listed_path.partition("/")[2]))


def _walk_data_sets(root: Path, name: str, make_reference: Callable[[str], str]) -> list[DataSetLocation]:
    data_sets: list[DataSetLocation] = []

    def enter(folder: Path, listed_path: str, entries: Entries) -> list[Path]:
        if is_benchmark(folder):
            return []
        if _is_data_set(folder, entries) or (folder != root and _is_configuration(entries)):
            data_sets.append(DataSetLocation(make_reference(listed_path), folder, listed_path))
            return []
        for entry in entries:
            if entry.name.endswith(ARRAYS_SUFFIX) and not is_folder(entry):
                inner = f"{listed_path}/{entry.name}"
                data_sets.append(DataSetLocation(make_reference(inner), Path(entry.path), inner))
        return [Path(entry.path) for entry in entries if is_folder(entry)]

    walk_folders(root, name, enter)
    return sorted(data_sets, key=lambda location: location.listed_path)


def _list_entries(folder: Path, max_count: int) -> Entries:
    """The first visible entries of a folder, by name; none if it cannot be read."""
    try:
        return list_visible_entries(folder, max_count)
    except OSError:
        return []


def _is_data_set(folder: Path, entries: Sequence[os.DirEntry[str]]) -> bool:
    """Whether a folder has the files of a published data set, or class folders with images, perhaps by split."""
    files = {entry.name for entry in entries if not is_folder(entry)}
    if files & TABLE_FILES or any(name.endswith(PARQUET_SUFFIX) for name in files) or is_repository(folder):
        return True
    if (CLASS_NAMES_FILE in files and _has_ending(files, TAR_SUFFIX)) or (
        INFO in files and _has_ending(files, ARROW_SUFFIX)
    ):
        return True
    folders = [Path(entry.path) for entry in entries if is_folder(entry)]
    if folders and LIBRARY in folder.name:  # ORGANIZATION___NAME in the cache of the library ``datasets``
        return True
    if any(path.name == "data" and _has_ending(_list_names(path), PARQUET_SUFFIX) for path in folders):
        return True
    parts = [path for path in folders if part_of_name(path.name)]
    if any(_has_ending(_list_names(path), PARQUET_SUFFIX, TAR_SUFFIX) for path in parts):
        return True
    if folders and len(parts) == len(folders):
        folders = [Path(e.path) for path in folders for e in _list_entries(path, MAX_SEARCHED_CLASSES) if is_folder(e)]
    return any(_has_ending(_list_names(path), *SUFFIXES) for path in folders[:MAX_SEARCHED_CLASSES])


def _is_configuration(entries: Sequence[os.DirEntry[str]]) -> bool:
    """Whether the only folder in a folder is a configuration, with tables in it or in its folders for each split."""
    folders = [Path(entry.path) for entry in entries if is_folder(entry)]
    inner = [path / name for path in folders for name in _list_names(path) if part_of_name(name)]
    return len(folders) == 1 and any(_has_ending(_list_names(path), PARQUET_SUFFIX) for path in (*folders, *inner))


def _list_names(folder: Path) -> list[str]:
    """The names of the first entries of a folder."""
    return [entry.name for entry in _list_entries(folder, MAX_SEARCHED_ENTRIES)]


def _has_ending(names: Iterable[str], *endings: str) -> bool:
    return any(name.lower().endswith(endings) for name in names)


def choose_task_key(name: str, used_keys: Iterable[str] = ()) -> str:
    """A valid name for a task, made from that of a data set and numbered if it is taken."""
    stem = re.sub(r"[^a-z0-9_-]+", "_", name.casefold()).strip("_-")[: MAX_KEY_CHARACTERS - 3] or "task"
    known_keys, key, number = set(used_keys), stem, 2
    while key in known_keys:
        key, number = f"{stem}_{number}", number + 1
    return key


def find_alike(name: str, names: Iterable[str]) -> str | None:
    """The name that differs only in punctuation and case; None if there is none."""
    return next((candidate for candidate in names if simplify_name(candidate) == simplify_name(name)), None)


def find_prompt_key(name: str) -> str | None:
    """The key of the papers' prompts for a data set of that name; None if there are none."""
    return find_alike(name, list_prompt_keys())
