"""Ranges of bytes in an open file: a whole checkpoint, a member of an archive, bytes inside a pickle."""

from __future__ import annotations

import os
from dataclasses import dataclass

from merging.base.errors import CheckpointError

CHUNK_BYTES = 1 << 16
MAX_LINE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Bytes [start, start + size) of an open file; messages call the file ``name``."""

    descriptor: int
    start: int
    size: int
    name: str

    @classmethod
    def from_descriptor(cls, descriptor: int, name: str) -> ByteRange:
        """The range of all bytes of a file."""
        return cls(descriptor, 0, os.fstat(descriptor).st_size, name)

    def sub_range(self, offset: int, size: int) -> ByteRange:
        """A range inside this one; raises CheckpointError if it reaches past the end."""
        if offset < 0 or size < 0 or offset + size > self.size:
            raise self.truncation_error()
        return ByteRange(self.descriptor, self.start + offset, size, self.name)

    def read(self, offset: int, size: int) -> bytes:
        """``size`` bytes from ``offset``; raises CheckpointError if the file is shorter."""
        span = self.sub_range(offset, size)
        raw = os.pread(self.descriptor, span.size, span.start)
        if len(raw) != size:
            raise self.truncation_error()
        return raw

    def read_start(self, size: int) -> bytes:
        """The first ``size`` bytes, or all bytes if there are fewer."""
        return os.pread(self.descriptor, min(size, self.size), self.start)

    def truncation_error(self) -> CheckpointError:
        """The error for a file that is shorter than its content states."""
        return CheckpointError(f"{self.name} is damaged or truncated ({self.size} bytes); download or copy it again.")


class Cursor:
    """Reads a range from its start to its end, in chunks; skipped bytes are not read."""

    def __init__(self, window: ByteRange) -> None:
        self.window, self.position = window, 0
        self._chunk, self._from = b"", 0  # the chunk that was read last, and its position in the range

    def read(self, size: int) -> bytes:
        """The next ``size`` bytes."""
        chunk_offset = self.position - self._from
        if chunk_offset < 0 or chunk_offset + size > len(self._chunk):
            if size > self.window.size - self.position:
                raise self.window.truncation_error()
            length = min(max(size, CHUNK_BYTES), self.window.size - self.position)
            self._chunk, self._from, chunk_offset = self.window.read(self.position, length), self.position, 0
        self.position += size
        return self._chunk[chunk_offset : chunk_offset + size]

    def readline(self) -> bytes:
        """The bytes up to and including the next newline; raises CheckpointError after ``MAX_LINE_BYTES`` bytes."""
        line = bytearray(self.read(1))
        while not line.endswith(b"\n"):
            chunk_offset = self.position - self._from
            end = self._chunk.find(b"\n", chunk_offset) + 1 or len(self._chunk)
            line += self.read(max(end - chunk_offset, 1))
            if len(line) > MAX_LINE_BYTES:
                raise self.window.truncation_error()
        return bytes(line)

    def skip(self, size: int) -> ByteRange:
        """The next ``size`` bytes as a range, which is not read."""
        skipped = self.window.sub_range(self.position, size)
        self.position += size
        return skipped
