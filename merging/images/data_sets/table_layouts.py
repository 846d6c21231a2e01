"""Finds the files of each part of a Hugging Face data set.

These layouts are known: one parquet file; a folder with parquet files, directly, in ``data`` or in a folder for each
split; a folder for each configuration; arrow files of ``save_to_disk``; and the cache of the ``datasets`` library. A
configuration is one of several variants of a data set. A split has the data set's own name, a part the name that this
program gives it: "train", "validation", "test" or "whole".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from merging.base.errors import CheckpointError, TaskError
from merging.base.files.paths import resolve_contained
from merging.base.text import did_you_mean, first_few, printable
from merging.images.data_sets.labeled_images import TEST, TRAIN, VALIDATION, WHOLE, part_of_name
from merging.images.data_sets.table_files import is_parquet
from merging.models.formats.configs import read_json

SHARD_NAME = re.compile(r"(?P<split>.+?)-\d{5}-of-(?P<shards>\d{5})(?:-[0-9a-f]+)?")
NUMBER_NAME = re.compile(r"\d+")  # the name of a file whose folder is named after its split
STATE, SPLITS_FILE, INFO = "state.json", "dataset_dict.json", "dataset_info.json"
CACHE_DEPTH = 3  # folders of the cache: configuration, version, fingerprint
PART_ORDER = (TRAIN, VALIDATION, TEST)
Splits = dict[str, list[Path]]


@dataclass(frozen=True, slots=True)
class Tables:
    """The files of each part of a data set. Image files that cells name must be in ``root``."""

    name: str
    root: Path
    parts: Mapping[str, Sequence[Path]]
    notes: tuple[str, ...] = ()


def find_tables(path: Path, name: str, configuration: str | None = None, split: str | None = None) -> Tables | None:
    """The tables of a data set; None if a path holds none.

    Args:
        configuration: the one to open if there are several.
        split: a split to include although its name is not that of a part.

    Raises:
        TaskError: the description beside the files is damaged or names files in other folders, or there are several
            configurations and none is chosen.
    """
    if path.is_file():
        return Tables(name, path.parent, {WHOLE: [path]}) if is_parquet(path) else None
    if (path / STATE).exists():
        return Tables(name, path, {WHOLE: _find_saved_files(path)})
    if (path / SPLITS_FILE).exists():
        names = read_description(path / SPLITS_FILE).get("splits", [])
        saved = [
            split_name for split_name in names if isinstance(split_name, str) and re.fullmatch(r"[\w.-]+", split_name)
        ]
        return _group_by_part(
            Tables(name, path, {split_name: _find_saved_files(path / split_name) for split_name in saved}), split
        )
    splits = {} if configuration else _find_splits(path) or _find_splits(path / "data")
    if splits:
        return _group_by_part(Tables(name, path, splits), split)
    if not (configurations := _find_configurations(path)):
        return None
    chosen = _choose_configuration(configurations, configuration, name)
    other_names = first_few(other for other in configurations if other != chosen)
    notes = (
        (f"The configuration {printable(chosen)!r} was chosen; there is also {other_names}.",) if other_names else ()
    )
    return _group_by_part(Tables(name, path, _find_splits(configurations[chosen]), notes), split)


def list_configurations(path: Path) -> tuple[str, ...]:
    """The names of a data set's configurations; empty if it has none to choose from."""
    has_no_folders = path.is_file() or any((path / name).exists() for name in (STATE, SPLITS_FILE))
    return (
        () if has_no_folders or _find_splits(path) or _find_splits(path / "data") else tuple(_find_configurations(path))
    )


def _find_splits(folder: Path) -> Splits:
    """{split: its files} of a folder with parquet files, or with arrow files of the ``datasets`` cache; else empty."""
    if (folder / INFO).exists() and (files := _find_cached_files(folder)):
        return files
    splits: Splits = {}
    for file in _list_files(folder, ".parquet"):
        shard = SHARD_NAME.fullmatch(file.stem)
        split = folder.name if NUMBER_NAME.fullmatch(file.stem) else file.stem
        splits.setdefault(shard["split"] if shard else split, []).append(file)
    if not splits:
        folders = {sub.name: _list_files(sub, ".parquet") for sub in _list_folders(folder) if part_of_name(sub.name)}
        splits = {split: files for split, files in folders.items() if files}
    return splits


def _find_configurations(path: Path) -> dict[str, Path]:
    """{configuration: its folder}."""
    folders = {sub.name: sub for sub in _list_folders(path) if _find_splits(sub)}
    return folders or {sub.relative_to(path).as_posix(): sub for sub in _find_cache_folders(path, CACHE_DEPTH)}


def _choose_configuration(configurations: Mapping[str, Path], configuration: str | None, name: str) -> str:
    """The configuration of that name or first folder; the only one if ``configuration`` is None. Raises TaskError."""
    matches = [known for known in configurations if configuration in {None, known, known.split("/")[0]}]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise TaskError(f"{name} has several configurations: {first_few(matches, 20)}. Choose one with configuration.")
    hint = did_you_mean(str(configuration), configurations)
    raise TaskError(
        f"{name} has no configuration {printable(str(configuration))!r}.{hint} It has {first_few(configurations)}."
    )


def _group_by_part(tables: Tables, test_split: str | None) -> Tables:
    """The tables by part: splits with names of parts, and the split ``test_split``; other splits are ignored.

    A single split of another name is the whole data set. Raises TaskError if there are several and none is a part.
    """
    if len(tables.parts) == 1:
        parts = {part_of_name(split) or (split if split == test_split else WHOLE): list(files)
                 for split, files in tables.parts.items()}  # fmt: skip
    else:
        parts = {}
        for split, files in tables.parts.items():
            if part := part_of_name(split) or (split if split == test_split else None):
                parts.setdefault(part, []).extend(files)
    if not parts:
        raise TaskError(
            f"{tables.name} has the splits {first_few(tables.parts)}; at least one named train, validation or test is "
            "needed."
        )
    notes = [*tables.notes, *(note for part, files in parts.items() for note in _note_missing_shards(part, files))]
    return Tables(tables.name, tables.root, parts, tuple(notes))


def _note_missing_shards(part: str, files: Sequence[Path]) -> list[str]:
    """A note if some files of a part are missing."""
    shards = [match for file in files if (match := SHARD_NAME.fullmatch(file.stem))]
    if len(shards) < len(files) or len(shards) >= (total := max(int(shard["shards"]) for shard in shards)):
        return []
    return [
        f"Only {len(shards)} of the {total} files of part {part!r} are present; fetch the others for all its images."
    ]


def _find_saved_files(folder: Path) -> list[Path]:
    """The arrow files that ``save_to_disk`` wrote to a folder."""
    files = read_description(folder / STATE).get("_data_files", [])
    names = [entry.get("filename") for entry in files if isinstance(entry, dict)]
    if not names or not all(isinstance(name, str) and Path(name).name == name for name in names):
        raise TaskError(f"{folder.name}/{STATE} does not list its arrow files.")
    return [folder / str(name) for name in names]


def _find_cached_files(folder: Path) -> Splits:
    """{split: its arrow files} in the cache of the ``datasets`` library, without files of tables that it computed."""
    described = read_description(folder / INFO).get("splits")
    names = list(described) if isinstance(described, dict) else PART_ORDER
    splits: Splits = {}
    for file in _list_files(folder, ".arrow"):
        shard = SHARD_NAME.fullmatch(file.stem)
        stem = shard["split"] if shard else file.stem
        ends = [name for name in names if stem == name or stem.endswith(f"-{name}")]
        if ends:
            splits.setdefault(max(ends, key=len), []).append(file)  # "extra-train" rather than "train"
    return splits


def _find_cache_folders(folder: Path, depth: int) -> list[Path]:
    """Folders below one that hold a data set of the ``datasets`` cache."""
    folders = _list_folders(folder) if depth else []
    matches = [folder] if (folder / INFO).exists() and _find_cached_files(folder) else []
    return matches or [inner for sub in folders for inner in _find_cache_folders(sub, depth - 1)]


def _list_folders(folder: Path) -> list[Path]:
    """Visible folders in a folder, by name; links are not followed."""
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return []
    return [entry for entry in entries if entry.is_dir() and not entry.is_symlink() and not entry.name.startswith(".")]


def _list_files(folder: Path, suffix: str) -> list[Path]:
    """The files with an ending in a folder, by name. Raises TaskError for a link that leads out of the folder."""
    files = [file for file in sorted(folder.glob(f"*{suffix}")) if not file.is_dir()]
    try:
        for file in files:
            resolve_contained(file)
    except CheckpointError as error:
        raise TaskError(f"{folder.name}: {error}") from None
    return files


def read_description(path: Path) -> dict[str, Any]:
    """The mapping in a JSON file beside tables. Raises TaskError if it is missing or damaged."""
    try:
        content = read_json(path)
    except (CheckpointError, OSError) as error:
        raise TaskError(f"{path.parent.name}/{error}") from None
    if content is None:
        raise TaskError(f"{path.parent.name} has no {path.name}.")
    return content
