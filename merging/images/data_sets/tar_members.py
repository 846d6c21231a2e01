"""The members of a tar: their names and the positions of their bytes, without unpacking.

Only headers are read, at most 1 MB at a time. Compressed archives, links, and names that lead out of the folder are
refused.
"""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from merging.base.errors import CheckpointError, TaskError
from merging.base.files.paths import open_regular, resolve_contained
from merging.base.text import printable

MAX_HEADER_BYTES = 1 << 20  # bytes read at once; headers take 512, long names some more
MAX_MEMBERS = 20_000_000


@dataclass(frozen=True, slots=True)
class TarMember:
    """A file in a tar: ``size`` bytes from ``offset`` of the tar."""

    name: str
    offset: int
    size: int


class _HeaderReader(io.RawIOBase):
    """A file whose reads are small, so that a header cannot ask for gigabytes."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def read(self, size: int = -1, /) -> bytes:
        if not 0 <= size <= MAX_HEADER_BYTES:
            raise tarfile.ReadError(f"a header of {size:,} bytes")
        return self._file.read(size)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()


def read_members(path: Path) -> Iterator[TarMember]:
    """The files in a tar, in its order; folders are skipped.

    Raises:
        TaskError: the tar is damaged, cut off or compressed, or holds links or names that lead out of its folder.
    """
    try:
        with os.fdopen(open_regular(resolve_contained(path)), "rb") as file:
            length = file.seek(0, io.SEEK_END)
            file.seek(0)
            with tarfile.open(fileobj=_HeaderReader(file), mode="r:") as archive:
                number = 0
                while entry := archive.next():
                    _check_member(entry, number, length, path.name)
                    vars(archive)["members"].clear()  # otherwise every header stays in memory
                    number += 1
                    if entry.isreg():
                        yield TarMember(entry.name, entry.offset_data, entry.size)
                file.seek(archive.offset)  # tarfile also stops at a damaged header
                if file.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
                    raise tarfile.ReadError(f"after {number} members there is no end-of-archive block")
    except CheckpointError as error:
        raise TaskError(str(error)) from None
    except (tarfile.TarError, OSError, ValueError, EOFError) as error:
        reason = printable(str(error), 100)
        raise TaskError(
            f"{path.name} is damaged, or not an uncompressed tar: {reason}. Fetch it again, or write it again."
        ) from None


def _check_member(entry: tarfile.TarInfo, number: int, length: int, name: str) -> None:
    """Raise TaskError for a member that is not a plain file or folder inside the archive."""
    member = printable(entry.name, 80)
    if number >= MAX_MEMBERS:
        raise TaskError(f"{name} has more than {MAX_MEMBERS:,} members; refused.")
    if not (entry.isreg() or entry.isdir()) or entry.issparse():
        raise TaskError(f"{name}: {member!r} is a link or a special file; only files are read.")
    inner = PurePosixPath(entry.name)
    if inner.is_absolute() or ".." in inner.parts:
        raise TaskError(f"{name}: the name {member!r} leads out of the archive; refused.")
    if entry.size < 0 or entry.offset_data + entry.size > length:
        raise TaskError(f"{name} is cut off: {member!r} reaches beyond its end. Fetch it again.")
