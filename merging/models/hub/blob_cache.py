"""The Hub's cache in the layout of huggingface_hub; this module uses no network.

The folder of a repository has three folders: ``blobs`` has the contents of files, named by their digest; ``snapshots``
has, for each commit, links with the files' names to these blobs; ``refs`` has the commit of each branch.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from merging.base.files.records import write_text
from merging.models.hub.client import OFF, blocked_by_setting, load_library
from merging.models.hub.repository import COMMIT, DEFAULT_BRANCH, Repository, RepositoryFile

BLOBS, SNAPSHOTS, REFS, PART_SUFFIX = "blobs", "snapshots", "refs", ".part"


def cache_folder() -> Path:
    """The folder of the cache, by $HF_HUB_CACHE or $HF_HOME."""
    return Path(load_library().constants.HF_HUB_CACHE)


def repository_folder(repository: Repository, cache: Path | None = None) -> Path:
    """The folder of a repository in the Hub's cache, or in ``cache``, another folder of the same layout."""
    return (cache_folder() if cache is None else cache) / repository.folder


def find_snapshot(repository: Repository, cache: Path | None = None) -> Path | None:
    """The folder of a revision's files in the cache; None if it does not exist or a setting forbids the cache."""
    if cache is None and blocked_by_setting() == OFF:  # the setting forbids to read the Hub's own cache
        return None
    path = repository_folder(repository, cache)
    commit = repository.revision if repository.pinned else read_ref(path, repository.revision or DEFAULT_BRANCH)
    folder = path / SNAPSHOTS / (commit or "")
    return folder if commit and folder.is_dir() else None


def find_complete_snapshot(
    repository: Repository, files: Iterable[RepositoryFile], cache: Path | None = None
) -> Path | None:
    """The snapshot of a revision if it has all of these files with their sizes; else None."""
    folder = find_snapshot(repository, cache)
    return folder if folder is not None and all(_has_size(folder / file.name, file.size) for file in files) else None


def count_cached_bytes(repository: Repository, files: Iterable[RepositoryFile], cache: Path | None = None) -> int:
    """How many bytes of these files are cached: complete files, and the beginnings of others."""
    blobs, folder = repository_folder(repository, cache) / BLOBS, find_snapshot(repository, cache)
    return sum(_count_file_bytes(file, blobs, folder) for file in files)


def keep_complete_blob(blob: Path, size: int | None) -> bool:
    """Whether the cache holds a blob of this size (None: of any size); a blob of another size is removed."""
    if blob.is_file() and not _has_size(blob, size):
        blob.unlink()
    return blob.is_file()


def link_blob(repository_path: Path, commit: str, name: str, key: str) -> None:
    """Link a file of a snapshot to the blob of this key."""
    path, blob = repository_path / SNAPSHOTS / commit / name, repository_path / BLOBS / key
    if not blob.is_file() or (path.is_file() and path.is_symlink() and path.readlink().name == key):
        return  # the link exists; without a blob, an earlier call has moved it to the path (see below)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    try:
        path.symlink_to(os.path.relpath(blob, path.parent))
    except FileExistsError:
        return  # another process has just made the same link
    except (OSError, NotImplementedError):
        shutil.move(blob, path)  # the disk has no links, as on a memory stick; huggingface_hub also moves the file


def read_ref(repository_path: Path, name: str) -> str:
    """The commit that a branch or tag had when it was last fetched; empty if it was never fetched."""
    with contextlib.suppress(OSError, ValueError):
        commit = (repository_path / REFS / name).read_text("ascii").strip()
        return commit if COMMIT.fullmatch(commit) else ""
    return ""


def write_ref(repository_path: Path, name: str, commit: str) -> None:
    """Store the commit of a branch or tag."""
    path = repository_path / REFS / name
    if read_ref(repository_path, name) != commit:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, commit)


def _count_file_bytes(file: RepositoryFile, blobs: Path, folder: Path | None) -> int:
    """Bytes of a file that are cached."""
    if folder is not None and _has_size(folder / file.name, file.size):
        return file_size(folder / file.name) or 0
    if file.key and _has_size(blobs / file.key, file.size):
        return file_size(blobs / file.key) or 0
    return (file_size(blobs / (file.key + PART_SUFFIX)) or 0) if file.key else 0


def file_size(path: Path) -> int | None:
    """The size of a file in bytes; None if there is no file."""
    with contextlib.suppress(OSError):
        return path.stat().st_size if path.is_file() else None
    return None


def _has_size(path: Path, size: int | None) -> bool:
    """Whether the file exists and has this size, unless the size is None."""
    actual = file_size(path)
    return actual is not None and size in {None, actual}
