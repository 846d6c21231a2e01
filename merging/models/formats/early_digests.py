"""Digests of large safetensors files, computed by a child process while this process still loads torch.

A thread is too slow: loading modules holds the interpreter's lock. The child process writes lines of JSON to its
standard output: how much of a file it has read, and finally the digest. Their field ``state`` is a file's fingerprint.
If the child cannot read a file, ``Checkpoint.content_digest`` reads it and explains the problem. Importing this module
does not load torch.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import stat
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from merging.base.errors import MergingError
from merging.base.files.paths import file_fingerprint, open_regular, resolve_contained
from merging.models.content_digest import DIRECT_HASH_BYTES, BytesCallback, ContentDigest
from merging.models.digest_cache import DIGESTS
from merging.models.formats.model_sources import ModelRef

PIECE_BYTES = 1 << 20  # bytes that are read at a time
REPORT_BYTES = 1 << 25  # bytes read between two reports
POLL_SECONDS = 0.1  # between checks whether to stop
MAX_HEADER_BYTES = 100_000_000
LENGTH_BYTES = 8  # of the number before the header, which is the header's length
REPOSITORY_ROOT = Path(__file__).resolve().parents[3]

FileFingerprint = tuple[int, ...]


@contextlib.contextmanager
def early_digests(models: Iterable[ModelRef]) -> Iterator[None]:
    """Compute the digests of these models' files in a child process while the block runs.

    Digests of small files, folders and models on the Hub are computed when they are needed.
    """
    files = dict(_find_large_files(models))
    if not files:
        yield
        return
    command = [sys.executable, "-m", __name__, *map(str, files.values())]
    with subprocess.Popen(
        command, cwd=REPOSITORY_ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        try:
            with DIGESTS.use_digests_from(_ReportedDigests(set(files), process.stdout)):
                yield
        finally:
            process.kill()


def _find_large_files(models: Iterable[ModelRef]) -> Iterator[tuple[FileFingerprint, Path]]:
    """Fingerprint and path of each model that is a large file."""
    for model in models:
        with contextlib.suppress(MergingError, OSError, ValueError):
            if model.is_on_hub:
                continue
            path = resolve_contained(model.path).absolute()
            status = path.stat()
            if stat.S_ISREG(status.st_mode) and status.st_size > DIRECT_HASH_BYTES:
                yield (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns), path


class _ReportedDigests:
    """The digests that the child process reports, by the fingerprint of the file."""

    def __init__(self, awaited: set[FileFingerprint], pipe: IO[bytes]) -> None:
        self._pending, self._pipe = awaited, pipe
        self._digests: dict[FileFingerprint, str] = {}
        self._unparsed = b""

    def __call__(self, fingerprint: FileFingerprint, on_bytes: BytesCallback) -> str:
        """Wait for the digest of the file with this fingerprint; empty if the child process does not report it."""
        while fingerprint in self._pending and fingerprint not in self._digests:
            on_bytes(0)  # raises if the user cancelled
            if not select.select([self._pipe], [], [], POLL_SECONDS)[0]:
                continue
            raw = os.read(self._pipe.fileno(), 1 << 16)
            if not raw:
                self._pending.clear()
            *lines, self._unparsed = (self._unparsed + raw).split(b"\n")
            for line in lines:
                self._read_report(json.loads(line), fingerprint, on_bytes)
        return self._digests.get(fingerprint, "")

    def _read_report(self, report: Any, awaited_fingerprint: FileFingerprint, on_bytes: BytesCallback) -> None:
        fingerprint = tuple(report["state"])
        if "digest" in report:
            self._digests[fingerprint] = report["digest"]
        elif fingerprint == awaited_fingerprint:
            on_bytes(report["read"])


def compute_digest(path: Path, on_bytes: BytesCallback) -> tuple[FileFingerprint, str]:
    """Fingerprint and digest of a safetensors file, equal to those of its checkpoint.

    Raises:
        MergingError, OSError, ValueError, KeyError, TypeError: the file is not safetensors, or it changed meanwhile.
    """
    descriptor = open_regular(path)
    try:
        fingerprint = file_fingerprint(descriptor)
        length = int.from_bytes(os.pread(descriptor, LENGTH_BYTES, 0), "little")
        if length > min(MAX_HEADER_BYTES, os.fstat(descriptor).st_size - LENGTH_BYTES):
            raise ValueError(length)
        entries = json.loads(os.pread(descriptor, length, LENGTH_BYTES))
        entries.pop("__metadata__", None)
        spans = {name: entry["data_offsets"] for name, entry in entries.items()}
        content = ContentDigest(sum(end - begin for begin, end in spans.values()))
        for name in sorted(entries):
            content.begin(name, entries[name]["dtype"], tuple(entries[name]["shape"]))
            begin, end = spans[name]
            for piece in _read_pieces(descriptor, LENGTH_BYTES + length + begin, end - begin):
                content.update(piece)
                on_bytes(len(piece))
        if file_fingerprint(descriptor) != fingerprint:
            raise ValueError(fingerprint)
        return fingerprint, content.hexdigest()
    finally:
        os.close(descriptor)


def _read_pieces(descriptor: int, offset: int, size: int) -> Iterator[memoryview]:
    """The bytes of a tensor, piece by piece, in a reused buffer."""
    buffer = memoryview(bytearray(min(PIECE_BYTES, size)))
    read_bytes = 0
    while read_bytes < size:
        count = os.preadv(descriptor, [buffer[: size - read_bytes]], offset + read_bytes)
        if count == 0:
            raise ValueError(f"shorter than {offset + size} bytes")
        yield buffer[:count]
        read_bytes += count


def main(paths: Iterable[str]) -> None:
    """Report the digests of files on standard output."""
    for path in map(Path, paths):
        with contextlib.suppress(MergingError, ValueError, KeyError, TypeError, RecursionError):
            _report(path)


def _report(path: Path) -> None:
    status = path.stat()
    fingerprint: FileFingerprint = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    unreported = 0

    def on_bytes(size: int) -> None:
        nonlocal unreported
        unreported += size
        if unreported >= REPORT_BYTES:
            _print(state=fingerprint, read=unreported)
            unreported = 0

    actual_fingerprint, digest = compute_digest(path, on_bytes)
    _print(state=actual_fingerprint, digest=digest)


def _print(**report: Any) -> None:
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    with contextlib.suppress(OSError):  # a file cannot be read, or the parent closed the pipe
        main(sys.argv[1:])
