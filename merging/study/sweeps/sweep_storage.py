"""Stored sweeps: a YAML file for each, whose last line is a comment with the sha-256 of all other lines."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from merging.base.errors import MergingError, StoreError, UnknownMethodError
from merging.base.files.atomic import DamagedError, fingerprint_files
from merging.base.files.disk import STORE_REMEDY, exists_on_shared_disk, explain_os_errors
from merging.base.files.records import write_text
from merging.base.files.short_digest import SHORT_DIGEST
from merging.study.runs.run_store import Store
from merging.study.sweeps.sweep import AXIS_KINDS, Sweep
from merging.tasks.pack_folders import pack_name

FOLDER, SEAL = "sweeps", "# sha256: "


def store_sweep(sweep: Sweep, store: Store) -> None:
    """Store a sweep, or change the title of the stored one. Raises StoreError if the disk cannot be written to."""
    path = _path(store, sweep.id)
    with explain_os_errors("The sweep", STORE_REMEDY):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_text(path, add_digest(sweep.to_yaml()))


def find_sweep(store: Store, sweep_id: str) -> Sweep:
    """The sweep of an id. Raises StoreError if it is missing or cannot be read."""
    own_path = _path(store, sweep_id)
    for path in _paths(store, own_path):
        try:
            if sweep := _read_sweep(path):
                return sweep
        except DamagedError as damage:
            store.damaged.check_and_move(path, "sweep", damage, move=path == own_path)
    raise StoreError(f"There is no sweep {sweep_id} on this machine.")


def _paths(store: Store, own_path: Path) -> Iterator[Path]:
    """The files in which a sweep may be; the own file again, since another computer may just have written it."""
    yield from (folder / own_path.name for folder in _folders(store))
    if exists_on_shared_disk(own_path):
        yield own_path


def add_digest(text: str) -> str:
    """The text with its sha-256 as the last line."""
    return f"{text}{SEAL}{hashlib.sha256(text.encode()).hexdigest()}\n"


def _read_sweep(path: Path) -> Sweep | None:
    """The sweep in a file; None if there is no file, or only another version of the program can read it.

    Raises:
        DamagedError: the file was changed after it was written. Some files of the bundled library have no sha-256;
            these are checked by their id.
    """
    state = fingerprint_files(path.parent, (path.name,))
    return _parse_sweep(path, state) if state else None


@lru_cache(maxsize=256)
def _parse_sweep(path: Path, state: tuple[int, ...]) -> Sweep | None:
    """The sweep in a file, cached by the file's ``state``. Raises like ``_read_sweep``."""
    try:
        raw = path.read_bytes()
    except OSError:
        return None
    text = raw.decode("utf-8", "replace")
    body, seal, _ = text.rpartition(SEAL)
    if seal and add_digest(body) != text:
        raise DamagedError(f"{path.name} does not have the sha-256 in its last line")
    try:
        sweep = Sweep.from_yaml(text)
    except UnknownMethodError:
        return None
    except MergingError as error:
        if seal:
            return None
        raise DamagedError(f"{path.name} cannot be read: {error}") from None
    if sweep.id != path.stem:
        raise DamagedError(f"{path.name} contains another sweep than that of its name")
    return sweep


def list_sweeps(store: Store, kinds: Collection[str] = AXIS_KINDS) -> Mapping[str, Sweep]:
    """Every sweep of these kinds that can be read, by id: own ones, newest first, then precomputed ones by title."""
    own_sweeps, *libraries = (_list_folder(folder, store) for folder in _folders(store))
    precomputed = [pair for library in libraries for pair in library.items() if pair[0] not in own_sweeps]
    listed = own_sweeps | dict(sorted(precomputed, key=lambda pair: (pair[1].title, pair[0])))
    return {sweep_id: sweep for sweep_id, sweep in listed.items() if sweep.kind in kinds}


def _list_folder(folder: Path, store: Store) -> dict[str, Sweep]:
    """The sweeps of a folder that can be read, newest first."""
    sweeps = {}
    with contextlib.suppress(OSError):
        for path in sorted(folder.glob("*.yaml"), key=lambda path: path.stat().st_mtime, reverse=True):
            with contextlib.suppress(StoreError):
                sweeps[path.stem] = find_sweep(store, path.stem)
    return sweeps


def is_own(store: Store, sweep_id: str) -> bool:
    """Whether the sweep can be renamed and deleted."""
    return _path(store, sweep_id).is_file()


def find_pack(store: Store, sweep_id: str) -> str:
    """The name of the pack that a stored sweep is from; empty for others."""
    path = find_file(store, sweep_id)
    return pack_name(path) if path else ""


def find_file(store: Store, sweep_id: str) -> Path | None:
    """The file of a stored sweep, the own one first; None if there is none."""
    paths = (folder / _path(store, sweep_id).name for folder in _folders(store))
    return next((path for path in paths if path.is_file()), None)


def delete_sweep(store: Store, sweep_id: str) -> None:
    """Delete an own sweep, but not its points, which other sweeps may share. Raises StoreError if it is not own."""
    if not is_own(store, sweep_id):
        raise StoreError(f"Sweep {sweep_id[:40]!r} is not one of this machine's own, so it cannot be deleted.")
    with explain_os_errors("The sweep", STORE_REMEDY, "removed"):
        _path(store, sweep_id).unlink(missing_ok=True)


def _folders(store: Store) -> list[Path]:
    return [store.root / FOLDER, *(library.parent / FOLDER for library in store.libraries)]


def _path(store: Store, sweep_id: str) -> Path:
    if not SHORT_DIGEST.fullmatch(sweep_id):
        raise StoreError(f"{sweep_id[:40]!r} is not the id of a sweep; an id is twelve hexadecimal digits.")
    return store.root / FOLDER / f"{sweep_id}.yaml"
