"""Stores of a task's sampled images: their pixels, or references to their files."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from merging.base.errors import TaskError
from merging.base.files.npz import ArrayInfo
from merging.base.text import printable
from merging.images.benchmarks.data_set_locations import DIGESTS_ARRAY, SIZES_ARRAY, Location
from merging.images.benchmarks.image_decoding import Pixels, Square, decode_images
from merging.images.benchmarks.referenced_images import POSITIONS_ARRAY
from merging.images.data_sets.image_references import ImageReference
from merging.images.data_sets.labeled_images import DataSet
from merging.images.preprocess import crop_square

Arrays = Iterator[tuple[str, tuple[ArrayInfo, Iterable[bytes]]]]  # (name, (shape and dtype, bytes in pieces))


class ImageStore(ABC):
    """A store of images of one data set, resized to ``size`` for a tower and numbered from 0."""

    def __init__(self, data: DataSet, size: int) -> None:
        self.data, self.size = data, size

    @abstractmethod
    def read_squares(self, part: str, indices: Sequence[int]) -> Iterator[tuple[int, Square]]:
        """(index, pixels (size, size, 3)) for increasing indices of a part; a damaged image gives its error instead."""

    @abstractmethod
    def add(self, part: str, index: int, pixels: Pixels) -> int:
        """Add an image (size, size, 3) of a part; returns its number."""

    @abstractmethod
    def digest(self, number: int) -> bytes:
        """The sha-256 of an image's pixels."""

    @abstractmethod
    def build_arrays(self, split: str, numbers: Sequence[int]) -> Arrays:
        """(name, array) for the arrays of a split in the npz."""

    def sort_images(self, numbers: Sequence[int]) -> Sequence[int]:
        """The order of a split's images in the benchmark, as positions in ``numbers``."""
        return range(len(numbers))

    def close(self) -> None:  # noqa: B027 - most stores have nothing to close
        """Close open files."""


class StoredPixels(ImageStore):
    """Squares of pixels on disk, in the order in which they were added; the file is deleted when it is closed."""

    def __init__(self, data: DataSet, size: int, path: Path) -> None:
        super().__init__(data, size)
        self.nbytes, self.count = size * size * 3, 0
        self._path = path
        self._file = path.open("w+b")

    def read_squares(self, part: str, indices: Sequence[int]) -> Iterator[tuple[int, Square]]:
        for index, picture in self.data.read_images(part, indices):
            try:
                if isinstance(picture, TaskError):
                    raise picture
                yield index, crop_square(picture, self.size, f"image {index}")
            except TaskError as error:
                yield index, error

    def add(self, part: str, index: int, pixels: Pixels) -> int:
        self._file.seek(self.count * self.nbytes)
        self._file.write(pixels.tobytes())
        self.count += 1
        return self.count - 1

    def read(self, number: int) -> bytes:
        """The bytes of an image's pixels."""
        self._file.seek(number * self.nbytes)
        return self._file.read(self.nbytes)

    def digest(self, number: int) -> bytes:
        return hashlib.sha256(self.read(number)).digest()

    def build_arrays(self, split: str, numbers: Sequence[int]) -> Arrays:
        shape = (len(numbers), self.size, self.size, 3)
        yield f"{split}_images", (ArrayInfo(shape, np.dtype(np.uint8)), map(self.read, list(numbers)))

    def close(self) -> None:
        self._file.close()
        self._path.unlink(missing_ok=True)


class ImageLocations(ImageStore):
    """Positions of images in the data set's files. Every image is decoded once to leave out damaged ones."""

    def __init__(self, data: DataSet, size: int) -> None:
        super().__init__(data, size)
        self._digests: list[bytes] = []
        self._positions: list[tuple[int, int, int]] = []
        self._files: dict[tuple[Path, str], int] = {}

    def read_squares(self, part: str, indices: Sequence[int]) -> Iterator[tuple[int, Square]]:
        references = [self._reference(part, index) for index in indices]
        with decode_images(references, self.size, list) as chunks:
            yield from zip(indices, (square for chunk in chunks for square in chunk), strict=True)

    def _reference(self, part: str, index: int) -> ImageReference:
        reference = self.data.find_reference(part, index)
        if reference is None:
            raise TaskError(
                f"Image {index} of part {part!r} is not a file, a row of a parquet file or a member of a "
                f"tar ({printable(self.data.kind)}), so it cannot be referenced. Make the benchmark without "
                "--by-reference."
            )
        return reference

    def add(self, part: str, index: int, pixels: Pixels) -> int:
        reference = self._reference(part, index)
        number = self._files.setdefault((reference.file, reference.column), len(self._files))
        start = reference.offset if reference.row is None else reference.row
        self._positions.append((number, start, reference.size))
        self._digests.append(hashlib.sha256(pixels.tobytes()).digest())
        return len(self._positions) - 1

    def digest(self, number: int) -> bytes:
        return self._digests[number]

    def sort_images(self, numbers: Sequence[int]) -> Sequence[int]:
        """The order of the images in their files, so that rows are read once."""
        return sorted(range(len(numbers)), key=lambda index: self._positions[numbers[index]])

    def build_arrays(self, split: str, numbers: Sequence[int]) -> Arrays:
        positions = np.array([self._positions[number] for number in numbers], np.int64)
        yield f"{split}_{POSITIONS_ARRAY}", _wrap_array(positions.reshape(-1, 3))

    def list_locations(self) -> list[Location]:
        """The files, in the order of their numbers, with digests. Raises TaskError if one cannot be read."""
        try:
            return [Location.of_file(file, column) for file, column in self._files]
        except OSError as error:
            raise TaskError(f"A file of the data set cannot be read: {error}") from None


def build_identifying_arrays(locations: Sequence[Location]) -> Arrays:
    """The arrays of the npz that identify the files it refers to."""
    digests = np.frombuffer(b"".join(bytes.fromhex(location.digest) for location in locations), np.uint8)
    yield DIGESTS_ARRAY, _wrap_array(digests.reshape(-1, 32))
    yield SIZES_ARRAY, _wrap_array(np.array([location.size for location in locations], np.int64))


def _wrap_array(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> tuple[ArrayInfo, Iterable[bytes]]:
    return ArrayInfo(array.shape, array.dtype), [array.tobytes()]
