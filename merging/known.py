"""Digests of checkpoint files that this machine has read before: a file that is as it was is not read again.

A file is known by its device, number, size and time of change; <store>/digests/ holds one small entry for each.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from merging.checkpoints import Checkpoint
from merging.entries import write_json
from merging.progress import Cancel, Meter, ProgressCallback
from merging.sources import digest, remember

FOLDER = "digests"
MOST = 5000  # entries that are read; the newest ones
AT_ONCE = 500_000_000  # bytes that a page may read while somebody waits

_loaded: dict[Path, int] = {}  # folder -> when it last changed, as this process has read it


def load(root: Path) -> None:
    """Let this process know what is stored under ``root``."""
    folder = root / FOLDER
    try:
        changed = folder.stat().st_mtime_ns
        if _loaded.get(folder) == changed:
            return
        paths = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)[-MOST:]
    except OSError:
        return
    found: dict[tuple[int, ...] | None, str] = {}
    for path in paths:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            entry = json.loads(path.read_bytes())
            found[tuple(map(int, entry["state"]))] = str(entry["digest"])
    remember(found)
    _loaded[folder] = changed


def keep(root: Path, checkpoint: Checkpoint, meter: Meter | None = None) -> str:
    """The digest of a checkpoint, written down for other processes; an unwritable store is no reason to fail."""
    state = checkpoint.state()
    found = digest(checkpoint, meter)
    if state is not None and checkpoint.state() == state:
        name = hashlib.sha256(repr(state).encode()).hexdigest()[:24]
        with contextlib.suppress(OSError):
            (root / FOLDER).mkdir(mode=0o700, parents=True, exist_ok=True)
            write_json(root / FOLDER / f"{name}.json", {"state": list(state), "digest": found})
    return found


def read(
    root: Path,
    checkpoints: Iterable[Checkpoint],
    progress: ProgressCallback | None = None,
    cancel: Cancel | None = None,
) -> dict[str, str]:
    """{name: digest} of checkpoints, all read and written down.

    Raises:
        CheckpointError: a file became shorter. Cancelled: ``cancel`` said so; what is known by then stays.
    """
    opened = list(checkpoints)
    meter = Meter(sum(checkpoint.nbytes for checkpoint in opened), progress, cancel)
    return {checkpoint.name: keep(root, checkpoint, meter) for checkpoint in opened}
