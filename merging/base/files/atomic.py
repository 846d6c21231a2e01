"""Folders that exist whole or not at all: written as temporary folders, sealed by a manifest, then renamed.

Such a folder is an entry of the store. Its manifest lists all of its files with their sizes and hashes; writing the
manifest seals the folder.

No locks are needed. Two writers of one entry fill separate temporary folders; one rename succeeds, and the other
writer removes its folder. A reader trusts an entry only if its manifest and the sizes of all its files agree. It checks
the hash of a file when the file is first used. ``remove_leftovers`` removes the temporary folders of killed writers.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from blake3 import blake3

from merging.base.files import disk
from merging.base.files.disk import STORE_REMEDY, explain_os_errors, sync
from merging.base.files.records import write_json
from merging.base.files.temporary import OLD_KIND, leftover_kind, temporary_name

MANIFEST = "manifest.json"
# Errors of a rename whose target another writer has created first.
TARGET_EXISTS_ERRORS = {errno.ENOTEMPTY, errno.EEXIST}
MAX_CHECKS = 10  # how often a check is repeated because the entry was replaced during it
SHA256, BLAKE3 = "sha256", "blake3"
HASH_NAMES = {SHA256: "sha-256", BLAKE3: "BLAKE3"}
BLAKE3_MIN_BYTES = 1 << 24  # bytes above which a file is hashed with BLAKE3, which takes a third of the time
_PIECE_BYTES = 1 << 20

Manifest = dict[str, dict[str, Any]]  # file name -> {"sha256" or "blake3", "size"}
FileState = tuple[int, int, int, str]  # inode, size, time of change and hash of a file


class DamagedError(Exception):
    """An entry does not match its manifest; the store turns this into an error for users."""


def make_temporary(root: Path) -> Path:
    """A new private folder beside the entries; its name identifies the process that writes it."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = root / temporary_name()
    folder.mkdir(mode=0o700)
    return folder


def seal(folder: Path) -> dict[str, FileState]:
    """Sync every file to the disk, then write the manifest; a folder without a manifest is not an entry.

    Returns {file name: the file's state when it was hashed}.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    manifest: Manifest = {}
    states: dict[str, FileState] = {}
    for path in files:
        name, file_status = path.relative_to(folder).as_posix(), path.stat()
        kind = BLAKE3 if file_status.st_size > BLAKE3_MIN_BYTES else SHA256
        content_hash = file_hash(path, kind)
        manifest[name] = {kind: content_hash, "size": file_status.st_size}
        states[name] = _file_state(file_status, content_hash)
        sync(path)
    for inner in sorted({path.parent for path in files}):
        sync(inner)
    write_json(folder / MANIFEST, {"files": manifest})
    sync(folder)
    return states


def publish(folder: Path, final: Path) -> bool:
    """Rename a sealed folder to its final path; if another writer was first, remove the folder and return False."""
    try:
        with disk.rename_in_block(folder, final):
            folder.rename(final)
    except OSError as error:
        if error.errno not in TARGET_EXISTS_ERRORS:
            raise
        remove_temporary(folder)
        return False
    with contextlib.suppress(OSError):  # the entry is whole even if the sync fails
        sync(final.parent)
    return True


@contextlib.contextmanager
def write_folder(root: Path, name: str, is_valid: Callable[[Path], bool], subject: str) -> Iterator[Path]:
    """A folder to fill in the block, which then becomes ``root``/``name``; a valid entry of that name is not replaced.

    Raises:
        StoreError: the store cannot be written to; the message begins with ``subject``, the name of the entry.
    """
    with explain_os_errors(subject, STORE_REMEDY):
        folder, final = make_temporary(root), root / name
        try:
            yield folder
            states = seal(folder)
            replaces_damaged = final.exists() and not is_valid(final)
            if replace(folder, final) if replaces_damaged else publish(folder, final):
                _verified_files.update((str(final / name), *state) for name, state in states.items())
        finally:
            remove_temporary(folder)


def require_writable(root: Path, subject: str) -> None:
    """Raise StoreError if ``subject`` could not be written below ``root``; called before long work."""
    with explain_os_errors(subject, STORE_REMEDY):
        remove_temporary(make_temporary(root))


def replace(folder: Path, final: Path) -> bool:
    """Rename a folder to ``final``, replacing any entry; if another writer was first, remove the folder, return False.

    The old entry is set aside until the new one is published. If this process dies before that, ``remove_leftovers``
    restores it.
    """
    old_folder = final.with_name(temporary_name(OLD_KIND))
    old_folder.mkdir(mode=0o700)
    try:
        with contextlib.suppress(FileNotFoundError):
            final.rename(old_folder / final.name)
        return publish(folder, final)
    finally:
        _restore(old_folder)


def _restore(old_folder: Path) -> None:
    """Rename an entry that was set aside back to its final path if that is free; remove it otherwise.

    An entry that cannot be renamed stays.
    """
    with contextlib.suppress(OSError):
        for old_entry in old_folder.iterdir():
            try:
                if not (final := old_folder.with_name(old_entry.name)).exists():
                    old_entry.rename(final)
            except OSError as error:
                if (
                    error.errno not in TARGET_EXISTS_ERRORS
                ):  # another writer may have published an entry since the check
                    raise
        shutil.rmtree(old_folder)


def remove_entry(final: Path, subject: str = "") -> None:
    """Rename an entry to a temporary name, then remove it; do nothing if there is no such entry.

    Raises:
        StoreError: it cannot be removed; the message begins with ``subject``, by default the entry's name.
    """
    temporary = final.with_name(temporary_name())
    with explain_os_errors(subject or final.name, STORE_REMEDY, "removed"), contextlib.suppress(FileNotFoundError):
        final.rename(temporary)
    remove_temporary(temporary)  # a rename may succeed although a network file system lost its reply


def remove_temporary(folder: Path) -> None:
    """Remove a temporary folder, ignoring errors; three attempts, as another thread may still write a file into it."""
    for _ in range(3):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return


def read_manifest(folder: Path) -> Manifest:
    """The manifest of an entry; the sizes of all files are compared with it.

    Raises:
        DamagedError: the manifest is missing or malformed, or a file is missing or of another size.
    """
    try:
        files = json.loads((folder / MANIFEST).read_bytes())["files"]
        for name, entry in files.items():
            size = (folder / name).stat().st_size
            if size != entry["size"] or not isinstance(entry[_hash_kind(entry)], str):
                raise DamagedError(f"{name} has {size} bytes, its manifest states {entry['size']}")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedError(f"its manifest cannot be trusted: {error}") from None
    return dict(files)


def fingerprint_files(folder: Path, names: Iterable[str]) -> tuple[int, ...]:
    """Numbers that change when one of the named files of an entry is written or replaced; empty if one is missing."""
    try:
        stats = [os.stat(f"{folder}/{name}") for name in names]  # noqa: PTH116 - faster; a listing needs hundreds
    except OSError:
        return ()
    return tuple(number for stat in stats for number in (stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns))


_verified_files: set[tuple[str, int, int, int, str]] = set()  # path and state of files whose hash was verified


def verify_file(folder: Path, manifest: Mapping[str, Mapping[str, Any]], name: str) -> Path:
    """The path of one file of an entry, after checking its hash; once per process unless the file changes.

    Raises:
        DamagedError: the file is not in the manifest or does not have its hash.
    """
    path = folder / name
    if name not in manifest:
        raise DamagedError(f"{name} is not in its manifest")
    try:
        kind = _hash_kind(manifest[name])
        file_state = (str(path), *_file_state(path.stat(), str(manifest[name][kind])))
        if file_state not in _verified_files:
            if file_hash(path, kind) != manifest[name][kind]:
                raise DamagedError(f"{name} does not have the {HASH_NAMES[kind]} that its manifest states")
            _verified_files.add(file_state)
    except OSError as error:
        raise DamagedError(f"{name} cannot be read: {error.strerror}") from None
    return path


def _file_state(status: os.stat_result, content_hash: str) -> FileState:
    return status.st_ino, status.st_size, status.st_mtime_ns, content_hash


def _hash_kind(entry: Mapping[str, Any]) -> str:
    """The kind of hash that an entry of a manifest has."""
    return BLAKE3 if BLAKE3 in entry else SHA256


def is_whole(folder: Path) -> bool:
    """Whether every file matches the manifest."""
    try:
        check_whole(folder)
    except DamagedError:
        return False
    return True


def check_whole(folder: Path) -> None:
    """Raise DamagedError, which names the file, unless every file matches the manifest."""
    manifest = read_manifest(folder)
    for name in manifest:
        verify_file(folder, manifest, name)


def is_damaged(folder: Path) -> bool:
    """Whether an entry exists and is not whole; an entry that is replaced during the check is checked again."""
    for _ in range(MAX_CHECKS):
        identity = _identity(folder)
        if identity is None or is_whole(folder):
            return False
        if _identity(folder) == identity:
            return True
    return False


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        state = folder.stat()
    except OSError:
        return None
    return state.st_ino, state.st_ctime_ns


def remove_leftovers(root: Path) -> None:
    """Remove the temporary files of dead writers in a folder, and restore entries that they had set aside."""
    with contextlib.suppress(OSError):  # there is no such folder, or it is not readable
        for path in root.iterdir():
            kind = leftover_kind(path)
            if kind == OLD_KIND:
                _restore(path)
            elif kind and path.is_dir():
                remove_temporary(path)
            elif kind:
                path.unlink(missing_ok=True)


def file_hash(path: Path, kind: str = SHA256) -> str:
    """The hash of a file, "sha256" or "blake3", read piece by piece."""
    hasher = hashlib.sha256() if kind == SHA256 else blake3(max_threads=blake3.AUTO)
    buffer = memoryview(bytearray(_PIECE_BYTES))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            hasher.update(buffer[:count])
    return hasher.hexdigest()


@contextlib.contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """A temporary path for one file, which replaces ``path`` when the block ends without an error."""
    with temporary_beside(path) as folder:
        yield folder / path.name
        disk.sync_all(folder)
        with disk.rename_in_block(folder / path.name, path):
            (folder / path.name).replace(path)
        with contextlib.suppress(OSError):  # the file is whole even if the sync fails
            sync(path.absolute().parent)


@contextlib.contextmanager
def temporary_beside(target: Path) -> Iterator[Path]:
    """A temporary folder beside a path; it is removed after the block, as are new parent folders that stayed empty."""
    target = target.absolute()
    new_folders = [path for path in target.parents if not path.exists()]
    with explain_os_errors(target.name):
        target.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(target.parent)
        folder = make_temporary(target.parent)
        try:
            yield folder
        finally:
            remove_temporary(folder)
            for path in new_folders:  # new folders that stayed empty are removed again
                with contextlib.suppress(OSError):
                    path.rmdir()
