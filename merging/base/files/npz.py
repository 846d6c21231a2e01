"""NumPy's npz archives from untrusted sources: headers are checked before any array is read.

``np.load`` unpacks whole arrays of any size that their headers state. This module can also read single rows. It never
reads pickled objects.
"""

from __future__ import annotations

import contextlib
import os
import threading
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tokenize import TokenError
from types import TracebackType
from typing import IO, Any, Self

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from merging.base.errors import CheckpointError, TaskError
from merging.base.files.paths import file_fingerprint, open_regular, path_fingerprint, resolve_contained
from merging.base.text import first_few, printable

MAX_MEMBERS, MAX_NAME_CHARACTERS = 1000, 100_000  # arrays of an archive, and characters of all their names together
MAX_DIMENSIONS = 64  # as in NumPy
MAX_READ_BYTES = 1 << 32  # of an array that is read whole
# Compression factor and size in bytes above which an archive is taken for a zip bomb.
ZIP_BOMB_RATIO, ZIP_BOMB_MIN_BYTES = 200, 1 << 28
DTYPE_KINDS = "biufU"
CHUNK_BYTES = 1 << 22  # bytes read at a time
ZIP_MAGIC = b"PK\x03\x04"
DAMAGE_ERRORS = (  # exceptions of zipfile and of NumPy's header parser when an archive is damaged
    zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, RuntimeError, KeyError, SyntaxError, TokenError,
)  # fmt: skip
# NumPy parses headers as Python code, which may fail in several threads of CPython 3.11.
_header_parser_lock = threading.Lock()
MAX_KNOWN = 256  # archives whose infos are kept
_known_infos: dict[Any, Mapping[str, ArrayInfo]] = {}  # by the state of the file and of its members


def parse_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether it is stored by columns, and dtype of the npy array that a stream begins with.

    Raises:
        ValueError, SyntaxError, TokenError: it is damaged.
    """
    read_array_header = npy.read_array_header_1_0 if npy.read_magic(stream) == (1, 0) else npy.read_array_header_2_0
    with _header_parser_lock:
        shape, is_fortran_order, dtype = read_array_header(stream)
    return shape, is_fortran_order, dtype


@dataclass(frozen=True, slots=True)
class ArrayInfo:
    """Shape and dtype of an array, known without reading it."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """Bytes of the whole array."""
        count = self.dtype.itemsize
        for size in self.shape:
            count *= size
        return count


def read_array_infos(path: Path) -> Mapping[str, ArrayInfo]:
    """Shape and dtype of each array of an archive; they are cached until the file changes.

    Raises:
        TaskError: see ``Npz``.
    """
    return _read_array_infos(path, path_fingerprint(path))


@lru_cache(maxsize=512)
def _read_array_infos(path: Path, fingerprint: tuple[int, ...]) -> Mapping[str, ArrayInfo]:
    with Npz(path) as arrays:
        return arrays.infos


class Npz:
    """An npz archive; ``infos`` has the shape and dtype of each array.

    Raises:
        TaskError: not an npz, damaged, a zip bomb, or holding Python objects.
    """

    def __init__(self, path: Path) -> None:
        self.name = printable(path.name)
        try:
            descriptor = open_regular(resolve_contained(path))
        except CheckpointError as error:
            raise TaskError(str(error)) from None
        file = os.fdopen(descriptor, "rb")
        try:
            with self._explain_errors():
                self._archive = zipfile.ZipFile(file)
                members = self._archive.infolist()
                names = {member.filename for member in members}
                if not len(names) == len(members) <= MAX_MEMBERS or sum(map(len, names)) > MAX_NAME_CHARACTERS:
                    raise TaskError(f"{self.name}: it lists too many arrays, long names or one name twice; refused.")
                self.infos = self._read_infos(members, file_fingerprint(descriptor))
        except TaskError:
            file.close()
            raise
        self._file = file

    @contextlib.contextmanager
    def _explain_errors(self) -> Iterator[None]:
        """Turn every error of reading the archive into a TaskError of one sentence."""
        try:
            yield
        except TaskError:
            raise
        except DAMAGE_ERRORS as error:
            reason = printable(str(error).split("\n", maxsplit=1)[0], 100)
            raise TaskError(f"{self.name} is damaged or not an npz archive: {reason}.") from None

    def _read_infos(self, members: Sequence[zipfile.ZipInfo], fingerprint: tuple[int, ...]) -> Mapping[str, ArrayInfo]:
        """The infos of all arrays, from the last reading if neither the file nor its list of members has changed."""
        state = (
            fingerprint,
            tuple((m.filename, m.CRC, m.file_size, m.compress_size, m.compress_type, m.header_offset) for m in members),
        )
        if (infos := _known_infos.get(state)) is None:
            infos = {member.filename.removesuffix(".npy"): self._read_info(member) for member in members}
            if len(_known_infos) >= MAX_KNOWN:
                _known_infos.clear()
            _known_infos[state] = infos
        return infos

    def _read_info(self, member: zipfile.ZipInfo) -> ArrayInfo:
        label = f"{self.name}: array {printable(member.filename, 60)!r}"
        if member.file_size > ZIP_BOMB_MIN_BYTES and member.file_size > ZIP_BOMB_RATIO * member.compress_size:
            raise TaskError(f"{label} would unpack {member.compress_size:,} bytes to {member.file_size:,}; refused.")
        with self._archive.open(member) as stream:
            info = self._read_header(stream, label)
            if stream.tell() + info.nbytes != member.file_size:
                raise TaskError(f"{label} states {info.nbytes:,} bytes and has {member.file_size - stream.tell():,}.")
        return info

    def _read_header(self, stream: IO[bytes], label: str) -> ArrayInfo:
        shape, is_fortran_order, dtype = parse_header(stream)
        if dtype.hasobject:
            raise TaskError(f"{label} holds Python objects, which are not read. Save it as a plain array.")
        if dtype.kind not in DTYPE_KINDS or dtype.names is not None or dtype.subdtype is not None:
            raise TaskError(f"{label} is of type {printable(str(dtype), 40)}; numbers or text are expected.")
        if len(shape) > MAX_DIMENSIONS:
            raise TaskError(f"{label} has {len(shape)} dimensions; at most {MAX_DIMENSIONS} are read.")
        if is_fortran_order and len(shape) > 1:
            raise TaskError(f"{label} is stored by columns; save np.ascontiguousarray(array).")
        return ArrayInfo(tuple(int(size) for size in shape), dtype)

    def read(self, name: str) -> NDArray[Any]:
        """A whole array (*S), of any shape.

        Raises:
            TaskError: no array has that name, it is too large to be read whole, or the archive is damaged.
        """
        info = self._find_info(name)
        if info.nbytes > MAX_READ_BYTES:
            raise TaskError(
                f"{self.name}: array {name!r} takes {info.nbytes:,} bytes; at most {MAX_READ_BYTES:,} are read."
            )
        buffer = bytearray(info.nbytes)
        view, position = memoryview(buffer), 0
        with self._explain_errors(), self._open_stream(name) as stream:
            while position < len(view):
                piece = stream.read(min(CHUNK_BYTES, len(view) - position))
                if not piece:
                    raise EOFError("it ends too early")
                view[position : position + len(piece)] = piece
                position += len(piece)
        return np.frombuffer(buffer, info.dtype).reshape(info.shape)

    def read_rows(self, name: str, indices: Iterable[int]) -> Iterator[tuple[int, NDArray[Any]]]:
        """(index, row (*S)) of an array (n, *S) for increasing indices; one row is in memory at a time.

        Raises:
            TaskError: no array has that name, an index is out of range, or the archive is damaged.
        """
        info = self._find_info(name)
        row = ArrayInfo(info.shape[1:], info.dtype)
        with self._explain_errors(), self._open_stream(name) as stream:
            start = stream.tell()
            for index in indices:
                if not 0 <= index < info.shape[0]:
                    raise TaskError(f"{self.name}: {name!r} has no row {index}.")
                stream.seek(start + index * row.nbytes)
                data = stream.read(row.nbytes)
                if len(data) < row.nbytes:
                    raise EOFError("it ends too early")
                yield index, np.frombuffer(data, info.dtype).reshape(row.shape)

    def _find_info(self, name: str) -> ArrayInfo:
        if name not in self.infos:
            raise TaskError(f"{self.name} has no array {name!r}; it has {first_few(self.infos) or 'none'}.")
        return self.infos[name]

    @contextlib.contextmanager
    def _open_stream(self, name: str) -> Iterator[IO[bytes]]:
        """A stream of an array's bytes, positioned after its header."""
        member_name = f"{name}.npy" if f"{name}.npy" in self._archive.NameToInfo else name
        with self._archive.open(member_name) as stream:
            self._read_header(stream, self.name)
            yield stream

    def close(self) -> None:
        """Close the file."""
        self._archive.close()
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def write_npz(path: Path, arrays: Mapping[str, tuple[ArrayInfo, Iterable[bytes]]]) -> None:
    """Write arrays, {name: (info, pieces of its bytes)}; the same arrays produce the same file."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, (info, pieces) in arrays.items():
            header = {"descr": npy.dtype_to_descr(info.dtype), "fortran_order": False, "shape": info.shape}
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as stream:
                npy.write_array_header_1_0(stream, header)
                for piece in pieces:
                    stream.write(piece)


def is_npz(path: Path) -> bool:
    """Whether a file begins as a zip archive does."""
    try:
        with path.open("rb") as file:
            return file.read(len(ZIP_MAGIC)) == ZIP_MAGIC
    except OSError:
        return False
