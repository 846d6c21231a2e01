"""The cache of the Hub's files, in the layout that all programs share: blobs, snapshots of commits, and refs."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from merging.files.records import write_text
from merging.hub.client import OFF, library, switched_off
from merging.hub.repository import BRANCH, COMMIT, Repository, RepositoryFile

BLOBS, SNAPSHOTS, REFS, PART = "blobs", "snapshots", "refs", ".part"


def cache_folder() -> Path:
    """The folder of the cache, by $HF_HUB_CACHE or $HF_HOME."""
    return Path(library().constants.HF_HUB_CACHE)


def place_of(repository: Repository, into: Path | None = None) -> Path:
    """The folder of a repository in the cache, or in another folder of the same layout."""
    return (cache_folder() if into is None else into) / repository.folder


def cached(repository: Repository, name: str, into: Path | None = None, sha256: str | None = None) -> Path | None:
    """A file of a repository in the cache; None if it is not there. Nothing is asked of the network.

    It is the file of the pinned commit, or of the commit that the branch had when it was asked for. Where a pinned
    commit lacks it, the file of the branch main is given if it is known to be the one with this sha256.
    """
    own, main = snapshot(repository, into), snapshot(Repository(repository.kind, repository.name), into)
    name = RepositoryFile(name).name
    if own is not None and (own / name).is_file():
        return own / name
    if sha256 and main is not None and (main / name).is_file() and _blob_name(main / name) == sha256:
        return main / name
    return None


def snapshot(repository: Repository, into: Path | None = None) -> Path | None:
    """The folder of a revision's files in the cache; None if there is none, or if the cache must not be used."""
    if into is None and switched_off() == OFF:
        return None
    place = place_of(repository, into)
    revision = repository.revision or BRANCH
    commit = revision if repository.pinned else read_ref(place, revision)
    folder = place / SNAPSHOTS / commit
    return folder if commit and folder.is_dir() else None


def whole(repository: Repository, files: Iterable[RepositoryFile], into: Path | None = None) -> Path | None:
    """The snapshot of a revision if all of these files are in it, with their sizes; else None."""
    folder = snapshot(repository, into)
    return folder if folder is not None and all(_holds(folder / file.name, file.size) for file in files) else None


def bytes_here(repository: Repository, files: Iterable[RepositoryFile], into: Path | None = None) -> int:
    """How many bytes of these files need not be fetched again: whole files, and the beginnings of others."""
    blobs, folder = place_of(repository, into) / BLOBS, snapshot(repository, into)
    total = 0
    for file in files:
        whole_ones = [folder / file.name] if folder is not None else []
        whole_ones += [blobs / file.key] if file.key else []
        if size := next((_size(path) for path in whole_ones if _holds(path, file.size)), None):
            total += size
        elif file.key:
            total += _size(blobs / (file.key + PART)) or 0
    return total


def blob_here(place: Path, file: RepositoryFile) -> bool:
    """Whether the content of a file is in the cache under its key; one of another size is removed."""
    blob = place / BLOBS / file.key
    if not file.key or not blob.is_file():
        return False
    if not _holds(blob, file.size):
        blob.unlink()
        return False
    return True


def link(place: Path, commit: str, name: str, key: str) -> None:
    """Let a file of a snapshot be the blob of this key."""
    path, blob = place / SNAPSHOTS / commit / name, place / BLOBS / key
    if not blob.is_file() or (path.is_file() and _blob_name(path) == key):
        return  # it is there
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    try:
        path.symlink_to(os.path.relpath(blob, path.parent))
    except FileExistsError:
        return  # another process has just made the same link
    except (OSError, NotImplementedError):
        shutil.move(blob, path)  # a disk without links, such as a memory stick: the client library moves it too


def read_ref(place: Path, name: str) -> str:
    """The commit that a branch or tag had when it was asked for; empty if it never was."""
    with contextlib.suppress(OSError, ValueError):
        commit = (place / REFS / name).read_text("ascii").strip()
        return commit if COMMIT.fullmatch(commit) else ""
    return ""


def write_ref(place: Path, name: str, commit: str) -> None:
    """Note the commit of a branch or tag."""
    path = place / REFS / name
    if read_ref(place, name) != commit:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, commit)


def _holds(path: Path, size: int | None) -> bool:
    """Whether there is such a file, of this size if one is given."""
    actual = _size(path)
    return actual is not None and size in {None, actual}


def _size(path: Path) -> int | None:
    with contextlib.suppress(OSError):
        return path.stat().st_size if path.is_file() else None
    return None


def _blob_name(path: Path) -> str:
    """The key of a file in a snapshot; empty where there are no links."""
    with contextlib.suppress(OSError):
        return path.readlink().name
    return ""
