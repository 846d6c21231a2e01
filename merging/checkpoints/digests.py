"""Digests of checkpoint files, kept between processes: a file that has not changed is not read again.

A file is identified by its device, inode, size and time of change; <store>/digests/ holds one small entry per file.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from merging.checkpoints.checkpoint import Checkpoint, OnBytes, ignore
from merging.files.records import write_json
from merging.progress import Cancel, Meter, ProgressCallback

READING = "Reading checkpoints"
FOLDER = "digests"
MOST = 5000  # entries that are read at most; the newest ones
DIGEST = re.compile("[0-9a-f]{64}")
AT_ONCE = 500_000_000  # bytes that a page may read while the user waits


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
        folder = root / FOLDER
        try:
            changed = folder.stat().st_mtime_ns
            if self._loaded.get(folder) == changed:
                return
            paths = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)[-MOST:]
        except OSError:
            return
        for path in paths:
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                entry = json.loads(path.read_bytes())
                if DIGEST.fullmatch(entry["digest"]):
                    self._digests[tuple(map(int, entry["state"]))] = entry["digest"]
        self._loaded[folder] = changed

    def keep(self, root: Path, checkpoint: Checkpoint, meter: Meter | None = None) -> str:
        """The digest of a checkpoint, stored for other processes; a store that cannot be written is ignored."""
        state = checkpoint.state()
        digest = self.digest(checkpoint, meter)
        if state is not None and checkpoint.state() == state:
            name = hashlib.sha256(repr(state).encode()).hexdigest()[:24]
            with contextlib.suppress(OSError):
                (root / FOLDER).mkdir(mode=0o700, parents=True, exist_ok=True)
                write_json(root / FOLDER / f"{name}.json", {"state": list(state), "digest": digest})
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
