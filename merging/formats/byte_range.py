"""A part of an open file, read by offset: a whole checkpoint, a member of an archive, bytes inside a pickle."""

from __future__ import annotations

import os
from dataclasses import dataclass

from merging.errors import CheckpointError

CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Bytes [start, start + size) of a descriptor. ``name`` is what messages call the file."""

    descriptor: int
    start: int
    size: int
    name: str

    @classmethod
    def whole(cls, descriptor: int, name: str) -> ByteRange:
        """All of a file."""
        return cls(descriptor, 0, os.fstat(descriptor).st_size, name)

    def part(self, offset: int, size: int) -> ByteRange:
        """A window in this one; raises CheckpointError if it reaches out of it."""
        if offset < 0 or size < 0 or offset + size > self.size:
            raise self.truncated()
        return ByteRange(self.descriptor, self.start + offset, size, self.name)

    def read(self, offset: int, size: int) -> bytes:
        """``size`` bytes; raises CheckpointError where the file ends before."""
        inside = self.part(offset, size)
        found = os.pread(self.descriptor, inside.size, inside.start)
        if len(found) != size:
            raise self.truncated()
        return found

    def head(self, size: int) -> bytes:
        """The first bytes, as many of them as there are."""
        return os.pread(self.descriptor, min(size, self.size), self.start)

    def truncated(self) -> CheckpointError:
        """The error for a file that promises more than it has."""
        return CheckpointError(f"{self.name} is damaged or truncated ({self.size} bytes); download or copy it again.")

    def cursor(self) -> Cursor:
        """A reader from the beginning on."""
        return Cursor(self)


class Cursor:
    """Reads a window in order, in chunks; skips what is not wanted without reading it."""

    def __init__(self, window: ByteRange, position: int = 0) -> None:
        self.window, self.position = window, position
        self._chunk, self._from = b"", 0

    def take(self, size: int) -> bytes:
        """The next ``size`` bytes."""
        begin = self.position - self._from
        if begin < 0 or begin + size > len(self._chunk):
            if size > self.window.size - self.position:
                raise self.window.truncated()
            wanted = min(max(size, CHUNK), self.window.size - self.position)
            self._chunk, self._from, begin = self.window.read(self.position, wanted), self.position, 0
        self.position += size
        return self._chunk[begin : begin + size]

    def line(self, longest: int) -> bytes:
        """What comes before the next newline, which is skipped."""
        found = bytearray(self.take(1))
        while not found.endswith(b"\n"):
            begin = self.position - self._from
            end = self._chunk.find(b"\n", begin) + 1 or len(self._chunk)
            found += self.take(max(end - begin, 1))
            if len(found) > longest + 1:
                raise self.window.truncated()
        return bytes(found[:-1])

    def skip(self, size: int) -> ByteRange:
        """The next ``size`` bytes as a window; nothing is read."""
        found = self.window.part(self.position, size)
        self.position += size
        return found
