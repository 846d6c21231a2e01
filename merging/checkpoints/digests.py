"""Digests of checkpoint files, kept between processes: a file that has not changed is not read again.

A file is identified by its device, inode, size and time of change; <store>/digests/ holds one small entry per file.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from merging.checkpoints.checkpoint import Checkpoint, OnBytes, ignore
from merging.files.records import JsonRecords
from merging.progress import Cancel, Meter, ProgressCallback

READING = "Reading checkpoints"
FOLDER, VERSION = "digests", 1
MOST = 5000  # entries that are read at most; the newest ones
DIGEST = re.compile("[0-9a-f]{64}")


class DigestCache:
    """Digests by the state of their file: those of this process, and those that a store keeps."""

    def __init__(self) -> None:
        self._digests: dict[tuple[int, ...] | None, str] = {}
        self._loaded: dict[Path, int] = {}  # folder -> its time of change when this process read it

    def clear(self) -> None:
        """Forget the digests of this process; those in a store are kept."""
        self._digests.clear()
        self._loaded.clear()

    def remember(self, digests: Mapping[tuple[int, ...] | None, str]) -> None:
        """Add digests that were computed before, by the state that the file then had."""
        self._digests.update(digests)

    def remembered(self, state: tuple[int, ...] | None) -> str:
        """The digest of a file in that state; empty if this process has none."""
        return self._digests.get(state, "")

    def digest(self, checkpoint: Checkpoint, meter: Meter | None = None) -> str:
        """The checkpoint's digest, kept until its file changes; ``meter`` counts its bytes, read or not."""
        state = checkpoint.state()
        if state is None:
            digest = checkpoint.digest
        else:
            digest = self._digests.get(state) or self._digests.setdefault(
                state, checkpoint.content_digest(_bytes_read(checkpoint, meter))
            )
        if meter is not None:
            meter.advance(checkpoint.nbytes, READING, checkpoint.name)
        return digest

    def load(self, root: Path) -> None:
        """Read the digests stored under ``root``, unless none changed since this process last read them."""
        records = _records(root)
        try:
            changed = records.folder.stat().st_mtime_ns
        except OSError:
            return
        if self._loaded.get(records.folder) == changed:
            return
        for name in records.names():
            if entry := records.read(name, _entry):
                self._digests[entry[0]] = entry[1]
        self._loaded[records.folder] = changed

    def keep(self, root: Path, checkpoint: Checkpoint, meter: Meter | None = None) -> str:
        """The digest of a checkpoint, stored for other processes; a store that cannot be written is ignored."""
        state = checkpoint.state()
        digest = self.digest(checkpoint, meter)
        if state is not None and checkpoint.state() == state:
            name = hashlib.sha256(repr(state).encode()).hexdigest()[:24]
            with contextlib.suppress(OSError):
                _records(root).write(name, {"state": list(state), "digest": digest})
        return digest

    def read(
        self,
        root: Path,
        checkpoints: Iterable[Checkpoint],
        progress: ProgressCallback | None = None,
        cancel: Cancel | None = None,
    ) -> dict[str, str]:
        """{name: digest} of checkpoints, all read and stored.

        Raises:
            CheckpointError: a file became shorter.
            Cancelled: ``cancel`` asked to stop; digests computed until then are kept.
        """
        opened = list(checkpoints)
        meter = Meter(sum(checkpoint.nbytes for checkpoint in opened), progress, cancel)
        return {checkpoint.name: self.keep(root, checkpoint, meter) for checkpoint in opened}


DIGESTS = DigestCache()  # of this process


def _records(root: Path) -> JsonRecords:
    return JsonRecords(root / FOLDER, VERSION, MOST)


def _entry(record: Any) -> tuple[tuple[int, ...], str]:
    """State and digest of a file; raises ValueError or TypeError for what is no digest."""
    if not DIGEST.fullmatch(record["digest"]):
        raise ValueError(record["digest"])
    return tuple(map(int, record["state"])), record["digest"]


def _bytes_read(checkpoint: Checkpoint, meter: Meter | None) -> OnBytes:
    """A callback that reports to a meter how much of a checkpoint has been read."""
    if meter is None:
        return ignore
    meter.check()
    read = 0

    def on_bytes(size: int) -> None:
        nonlocal read
        read += size
        meter.within(read, READING, checkpoint.name)

    return on_bytes
