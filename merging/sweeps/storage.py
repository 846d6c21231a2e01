"""Stored sweeps: one YAML file for each, beside the runs."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from merging.errors import MergingError, StoreError
from merging.files.records import write_text
from merging.files.short_digest import SHORT_DIGEST
from merging.runs.store import Store
from merging.sweeps.sweep import Sweep

FOLDER = "sweeps"


def keep(sweep: Sweep, store: Store) -> None:
    """Store a sweep, or change the title of the stored one. Raises StoreError if the disk cannot be written to."""
    path = _path(store, sweep.id)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_text(path, sweep.to_yaml())
    except OSError as error:
        raise StoreError(f"The sweep cannot be kept: {error.strerror}.") from None


def find(store: Store, sweep_id: str) -> Sweep:
    """The sweep of that id. Raises StoreError if it is missing or cannot be read."""
    if not SHORT_DIGEST.fullmatch(sweep_id):
        raise StoreError(f"{sweep_id[:40]!r} is no id of a sweep; an id is twelve hexadecimal digits.")
    for folder in _folders(store):
        with contextlib.suppress(OSError, UnicodeDecodeError, MergingError):
            sweep = Sweep.from_yaml((folder / f"{sweep_id}.yaml").read_text("utf-8"))
            if sweep.id == sweep_id:
                return sweep
    raise StoreError(f"There is no sweep {sweep_id} on this machine.")


def listed(store: Store) -> Mapping[str, Sweep]:
    """Every sweep that can be read, by id: own ones, newest first, then precomputed ones."""
    sweeps: dict[str, Sweep] = {}
    for folder in _folders(store):
        with contextlib.suppress(OSError):
            for path in sorted(folder.glob("*.yaml"), key=lambda path: path.stat().st_mtime, reverse=True):
                with contextlib.suppress(StoreError):
                    sweeps.setdefault(path.stem, find(store, path.stem))
    return sweeps


def is_own(store: Store, sweep_id: str) -> bool:
    """Whether the sweep can be renamed and deleted."""
    return _path(store, sweep_id).is_file()


def delete(store: Store, sweep_id: str) -> None:
    """Delete an own sweep; its points stay, because other sweeps may share them. Raises StoreError for others."""
    try:
        _path(store, sweep_id).unlink()
    except OSError:
        raise StoreError(
            f"Sweep {sweep_id[:40]!r} is not one of this machine's own, so it cannot be deleted."
        ) from None


def _folders(store: Store) -> list[Path]:
    return [store.root / FOLDER, *(library.parent / FOLDER for library in store.libraries)]


def _path(store: Store, sweep_id: str) -> Path:
    if not SHORT_DIGEST.fullmatch(sweep_id):
        raise StoreError(f"{sweep_id[:40]!r} is no id of a sweep; an id is twelve hexadecimal digits.")
    return store.root / FOLDER / f"{sweep_id}.yaml"
