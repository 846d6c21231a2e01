"""Possible models in a folder: a bounded walk that reads names only and follows no links to folders."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from merging.base.files.short_digest import short_digest
from merging.images.benchmarks.benchmark_folders import HEADS_FILE, TASKS_FILE, TEXT_TOWER
from merging.models.formats import configs
from merging.models.formats.configs import ADAPTER_WEIGHTS, INDEX_SUFFIX, WEIGHT_FILES, WEIGHT_SUFFIXES
from merging.models.formats.model_sources import ModelRef
from merging.models.model_references import MODELS_PREFIX, hub_id_of
from merging.sharing.catalog.folder_walk import Entries, is_folder, resolve_typed_path, walk_folders

if TYPE_CHECKING:
    from merging.models.checkpoint import Checkpoint

BENCHMARK_FOLDERS = {"data", "runs", "measured", "points", "subsets", "sweeps"}  # folders of a benchmark without models
CACHE_FOLDERS = {"blobs", "refs"}  # of a repository in the Hub's cache, whose snapshots are the models
SHARD_PATTERN = re.compile(r"(.+)-\d{5}-of-\d{5}(\.[a-z]+)")  # the name of its index lacks the numbers
# Files that trainers and libraries write beside the weights in a model's folder.
OTHER_FILE_PATTERN = re.compile(
    r"(?:model|pytorch_model)-\d{5}-of-\d{5}\.(?:safetensors|bin)|training_args\.bin|(?:optimizer|scheduler|scaler)\.pt"
    r"|rng_state.*\.pth|tf_model\.h5|flax_model\.msgpack|open_clip_pytorch_model\.(?:bin|pt)|pytorch_model\.bin"
)


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A file or a model's folder. ``listed_path`` begins with the listed folder's name and is untrusted text.

    ``problem`` is why the entry is not opened, ``has_model_name`` whether its name is like that of a model.
    """

    reference: str
    path: Path
    listed_path: str
    is_folder: bool = False
    problem: str = ""
    has_model_name: bool = True

    @property
    def key(self) -> str:
        """A short name for widgets."""
        return short_digest(self.reference)

    def open(self, like: Checkpoint | None = None) -> Checkpoint:
        """Its checkpoint, with the tensor names of ``like`` if set. Raises CheckpointError if it cannot be read."""
        return ModelRef(self.reference).open(self.name, like)

    @property
    def name(self) -> str:
        """Its repository on the Hub, its folder's name, or its file's name without the ending."""
        last = self.listed_path.rpartition("/")[2]
        if hub := hub_id_of(str(self.path)):
            return hub
        for suffix in WEIGHT_SUFFIXES:
            last = last if self.is_folder else last.removesuffix(suffix)
        return last


@dataclass(slots=True)
class Listing:
    """The contents of a folder: possible models, benchmark folders, listed paths of other files, and notes."""

    items: list[CatalogEntry] = field(default_factory=list)
    benchmarks: list[CatalogEntry] = field(default_factory=list)
    other_files: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def list_models_folder(name: str, root: Path) -> Listing:
    """The contents of a folder of $MERGESCOPE_MODELS; references contain the folder's name, not its path."""
    return _walk_models(root, name, lambda listed_path: f"{MODELS_PREFIX}{listed_path}")


def list_typed_path(text: str) -> Listing:
    """The models at a path that the user typed: a folder, or a single file."""
    if (path := resolve_typed_path(text)) is None:
        return Listing(notes=["The text is not a valid path on this machine."])
    name = path.name or "/"
    if not path.is_dir():
        return Listing([CatalogEntry(str(path), path, name)])
    return _walk_models(path, name, lambda listed_path: str(path / listed_path.partition("/")[2]))


def _walk_models(root: Path, name: str, make_reference: Callable[[str], str]) -> Listing:
    listing = Listing()

    def enter(folder: Path, listed_path: str, entries: Entries) -> list[Path]:
        return _ScannedFolder(folder, listed_path, entries, make_reference).read_into(listing)

    listing.notes = walk_folders(root, name, enter)
    return listing


@dataclass
class _ScannedFolder:
    """One folder of the walk."""

    path: Path
    listed_path: str
    entries: Sequence[os.DirEntry[str]]
    make_reference: Callable[[str], str]

    def read_into(self, listing: Listing) -> list[Path]:
        """Add its contents to the listing; returns the subfolders to walk."""
        files = {entry.name for entry in self.entries if not is_folder(entry, follow=True)}
        shards = {name for name in files if _find_shard_index(name) in files}
        used_files = set(shards)
        if configs.ADAPTER_CONFIG in files or files & set(WEIGHT_FILES):
            listing.items.append(self._make_entry("", is_folder=True))
            standard_files = {
                *WEIGHT_FILES,
                *ADAPTER_WEIGHTS,
                configs.ADAPTER_CONFIG,
                configs.OPEN_CLIP,
                *configs.COMPANION_FILES,
            }
            other_files = {name for name in files if OTHER_FILE_PATTERN.fullmatch(name)} - standard_files - shards
            listing.other_files += [f"{self.listed_path}/{name}" for name in sorted(other_files)]
            used_files |= other_files | (files & standard_files)
        is_benchmark = {TASKS_FILE, HEADS_FILE} <= files
        if is_benchmark:
            listing.benchmarks.append(self._make_entry("", is_folder=True))
            used_files |= {TASKS_FILE, HEADS_FILE, TEXT_TOWER}
        for name in sorted(files - used_files):
            listing.items.append(self._make_entry(name))
        return [
            path for path in self._list_subfolders(listing) if not (is_benchmark and path.name in BENCHMARK_FOLDERS)
        ]

    def _list_subfolders(self, listing: Listing) -> Iterator[Path]:
        is_cache = self.path.name.startswith("models--")
        for entry in self.entries:
            if not is_folder(entry, follow=True):
                continue
            if entry.is_symlink():
                problem = "is a link to a folder, which is not followed; list the folder itself"
                listing.items.append(self._make_entry(entry.name, problem=problem))
            elif not (is_cache and entry.name in CACHE_FOLDERS):
                yield Path(entry.path)

    def _make_entry(self, name: str, *, is_folder: bool = False, problem: str = "") -> CatalogEntry:
        listed_path = f"{self.listed_path}/{name}" if name else self.listed_path
        try:
            listed_path.encode()
        except UnicodeEncodeError:
            problem = "has a name that cannot be decoded; rename it"
        has_model_name = is_folder or bool(problem) or name.endswith((*WEIGHT_SUFFIXES, INDEX_SUFFIX))
        return CatalogEntry(
            self.make_reference(listed_path),
            self.path / name if name else self.path,
            listed_path,
            is_folder,
            problem,
            has_model_name,
        )


def _find_shard_index(name: str) -> str:
    """The name of the index that lists the shard ``name``; empty if that is not a shard's name."""
    match = SHARD_PATTERN.fullmatch(name)
    return f"{match[1]}{match[2]}{INDEX_SUFFIX}" if match else ""
