"""Digests of checkpoint files, shared between processes: a file that has not changed is not read again.

A file is identified by its device, inode, size and time of change; <store>/digests/ holds one small entry per file.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from merging.base.files.records import JsonRecords
from merging.base.progress import Meter
from merging.models.content_digest import BytesCallback, ignore_bytes
from merging.tasks.context import QUIET, Context

if TYPE_CHECKING:  # it loads torch, which is not needed if another process computes the digests
    from merging.models.checkpoint import Checkpoint

READING = "Reading checkpoints"
FOLDER, VERSION = "digests", 2
MAX_ENTRIES = 5000  # newest entries that are read
DIGEST_PATTERN = re.compile("[0-9a-f]{64}")

# Waits for the digest of the file with this fingerprint; the result is empty if there will be none.
AwaitDigest = Callable[[tuple[int, ...], BytesCallback], str]


class DigestCache:
    """Digests by the fingerprint of their file: computed by this process, or loaded from a store."""

    def __init__(self) -> None:
        self._digests: dict[tuple[int, ...] | None, str] = {}
        self._load_times: dict[Path, int] = {}  # folder -> its time of change when this process read it
        self._await_digest: AwaitDigest | None = None

    def clear(self) -> None:
        """Forget the digests of this process; those in a store stay."""
        self._digests.clear()
        self._load_times.clear()

    @contextlib.contextmanager
    def use_digests_from(self, await_digest: AwaitDigest) -> Iterator[None]:
        """Use digests that another process computes while the block runs; this process computes the remaining ones."""
        self._await_digest = await_digest
        try:
            yield
        finally:
            self._await_digest = None

    def remember(self, digests: Mapping[tuple[int, ...] | None, str]) -> None:
        """Add digests that were computed earlier, by the fingerprint of the file at that time."""
        self._digests.update(digests)

    def find(self, fingerprint: tuple[int, ...] | None) -> str:
        """The digest of the file with this fingerprint; empty if this process does not know it."""
        return self._digests.get(fingerprint, "")

    def digest(self, checkpoint: Checkpoint, meter: Meter | None = None) -> str:
        """The checkpoint's digest, cached until its file changes; ``meter`` counts its bytes in both cases."""
        fingerprint = checkpoint.file_fingerprint()
        if fingerprint is None:
            digest = checkpoint.digest
        else:
            digest = self._digests.get(fingerprint) or self._digests.setdefault(
                fingerprint, self._compute(checkpoint, meter)
            )
        if meter is not None:
            meter.advance(checkpoint.nbytes, READING, checkpoint.name)
        return digest

    def _compute(self, checkpoint: Checkpoint, meter: Meter | None) -> str:
        """The digest of a checkpoint in a file, which another process may be computing."""
        on_bytes, fingerprint = _make_bytes_callback(checkpoint, meter), checkpoint.file_fingerprint()
        digest = ""
        if self._await_digest is not None and fingerprint is not None:
            digest = self._await_digest(fingerprint, on_bytes)
        return digest or checkpoint.content_digest(on_bytes)

    def load(self, root: Path) -> None:
        """Read the digests stored under ``root``, unless they have not changed since this process last read them."""
        records = _open_records(root)
        try:
            changed = records.folder.stat().st_mtime_ns
        except OSError:
            return
        if self._load_times.get(records.folder) == changed:
            return
        for name in records.names():
            if entry := records.read(name, _parse_entry):
                self._digests[entry[0]] = entry[1]
        self._load_times[records.folder] = changed

    def store(self, root: Path, checkpoint: Checkpoint, meter: Meter | None = None) -> str:
        """The digest of a checkpoint, stored for other processes; a store that cannot be written is ignored."""
        fingerprint = checkpoint.file_fingerprint()
        digest = self.digest(checkpoint, meter)
        if fingerprint == checkpoint.file_fingerprint():
            _store_digest(root, fingerprint, digest)
        return digest

    def read(self, root: Path, checkpoints: Iterable[Checkpoint], context: Context = QUIET) -> dict[str, str]:
        """{name: digest} of checkpoints; the digests are stored for other processes.

        Raises:
            CheckpointError: a file became shorter.
            Cancelled: the user cancelled; digests that are complete stay stored.
        """
        listed_checkpoints = list(checkpoints)
        meter = context.meter(sum(checkpoint.nbytes for checkpoint in listed_checkpoints))
        return {checkpoint.name: self.store(root, checkpoint, meter) for checkpoint in listed_checkpoints}


DIGESTS = DigestCache()  # of this process


def _open_records(root: Path) -> JsonRecords:
    return JsonRecords(root / FOLDER, VERSION, MAX_ENTRIES)


def _store_digest(root: Path, fingerprint: tuple[int, ...] | None, digest: str) -> None:
    """Store the digest of a file for other processes; a store that cannot be written is ignored."""
    if fingerprint is not None:
        name = hashlib.sha256(repr(fingerprint).encode()).hexdigest()[:24]
        with contextlib.suppress(OSError):
            _open_records(root).write(name, {"state": list(fingerprint), "digest": digest})  # "state": the fingerprint


def _parse_entry(record: Any) -> tuple[tuple[int, ...], str]:
    """Fingerprint and digest of a file; raises ValueError or TypeError if the record holds no digest."""
    if not DIGEST_PATTERN.fullmatch(record["digest"]):
        raise ValueError(record["digest"])
    return tuple(map(int, record["state"])), record["digest"]


def _make_bytes_callback(checkpoint: Checkpoint, meter: Meter | None) -> BytesCallback:
    """A callback that reports to a meter how much of a checkpoint has been read."""
    if meter is None:
        return ignore_bytes
    meter.check()
    read_bytes = 0

    def on_bytes(size: int) -> None:
        nonlocal read_bytes
        read_bytes += size
        meter.report_part(read_bytes, READING, checkpoint.name)

    return on_bytes
