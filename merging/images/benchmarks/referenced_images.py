"""Images of a split that are decoded on demand, used like an array in memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from merging.base.errors import TaskError
from merging.base.parallel import prefetch
from merging.images.benchmarks.data_set_locations import Location
from merging.images.benchmarks.image_decoding import CHUNK_SIZE, Pixels, decode_images, stack_pixels
from merging.images.data_sets.image_references import ImageReference

CACHED_IMAGES = 256  # single images that stay in memory, for pages that show them repeatedly
MAX_DECODED_BYTES = 1 << 26  # bytes of decoded images of a split that stay in memory
POSITIONS_ARRAY = "places"  # the array of a split (n, 3), see ``ReferencedImages``


@dataclass
class _ImageCache:
    """Single images by their position; the least recently used are dropped."""

    images: OrderedDict[bytes, Pixels] = field(default_factory=OrderedDict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, key: bytes, compute: Callable[[], Pixels]) -> Pixels:
        with self.lock:
            if key in self.images:
                self.images.move_to_end(key)
                return self.images[key]
        pixels = compute()
        pixels.flags.writeable = False  # sessions share the array
        with self.lock:
            self.images[key] = pixels
            while len(self.images) > CACHED_IMAGES:
                self.images.popitem(last=False)
        return pixels


@dataclass(frozen=True, eq=False)
class ReferencedImages:
    """Images (n, side, side, 3) as uint8 in files. ``positions`` (n, 3) are the positions of their bytes.

    A position is the number of the file, then either a row of a table and 0, or an offset and a size in bytes. As with
    an array in memory, an index gives one image (side, side, 3), and a slice or an array of indices gives an array of
    images; only these are decoded. Raises TaskError if an image cannot be decoded.
    """

    files: Sequence[Location]
    positions: NDArray[np.int64]
    side: int
    _cache: _ImageCache = field(default_factory=_ImageCache, repr=False)

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The shape (n, side, side, 3) of all images."""
        return len(self), self.side, self.side, 3

    @property
    def nbytes(self) -> int:
        """Bytes that are in memory."""
        return self.positions.nbytes + len(self._cache.images) * 3 * self.side**2

    def __getitem__(self, index: Any) -> Pixels:
        if isinstance(index, int | np.integer):
            return self._cache.get(self.positions[index].tobytes(), lambda: self.select([index]).decode()[0])
        return self.select(index).decode()

    def select(self, indices: Any) -> ReferencedImages:
        """The images at these indices, not decoded yet."""
        return replace(self, positions=self.positions[indices])

    def decode(self) -> Pixels:
        """All images (n, side, side, 3) in memory; files are read in the order of their rows."""
        pixels, start = np.empty(self.shape, np.uint8), 0
        order = np.lexsort(self.positions.T[::-1])  # by file, then by row or offset
        with decode_images(self.select(order).list_references(), self.side, stack_pixels) as chunks:
            for chunk in chunks:
                pixels[order[start : start + len(chunk)]] = chunk
                start += len(chunk)
        return pixels

    def list_references(self) -> list[ImageReference]:
        """The reference to each image's bytes."""
        return [self._make_reference(*position) for position in self.positions.tolist()]

    def _make_reference(self, number: int, start: int, size: int) -> ImageReference:
        file = self.files[number]
        if file.column:
            return ImageReference(file.file, row=start, column=file.column)
        return ImageReference(file.file, offset=start, size=size)

    @contextmanager
    def batches(
        self, size: int, prepare: Callable[[Pixels], Tensor], workers: int | None = None
    ) -> Iterator[Iterator[Tensor]]:
        """Batches (at most ``size``, 3, h, w) of prepared images; each is prepared while the one before is in use.

        ``prepare`` maps pixels (n, side, side, 3) to images (n, 3, h, w).
        """
        chunk_size = min(size, CHUNK_SIZE)

        def join_chunks(chunks: Iterator[Tensor]) -> Iterator[Tensor]:
            while batch := list(islice(chunks, size // chunk_size)):
                yield torch.cat(batch)

        with (
            decode_images(
                self.list_references(), self.side, lambda squares: prepare(stack_pixels(squares)), chunk_size, workers
            ) as chunks,
            prefetch(join_chunks(chunks)) as batches,
        ):
            yield batches


def build_referenced_images(
    files: Sequence[Location], positions: NDArray[Any], side: int, name: str
) -> ReferencedImages:
    """Images (n, side, side, 3) at ``positions`` (n, 3), not decoded yet.

    Raises:
        TaskError: the positions do not fit the files; ``name`` is the file from which they were read.
    """
    if positions.ndim != 2 or positions.shape[1] != 3 or positions.dtype.kind not in "iu":
        raise TaskError(
            f"{name}: positions of images must be three whole numbers each; got {positions.dtype} {positions.shape}."
        )
    if positions.size and (positions.min() < 0 or positions[:, 0].max() >= len(files)):
        raise TaskError(f"{name} refers to images outside of its {len(files)} files.")
    return ReferencedImages(files, positions.astype(np.int64), side)


Images: TypeAlias = NDArray[np.uint8] | ReferencedImages


def select_images(images: Images, indices: NDArray[Any], max_bytes: int = MAX_DECODED_BYTES) -> Images:
    """The images (n, h, w, 3) at ``indices`` (n,), for repeated use.

    They are decoded into memory if they take at most ``max_bytes`` bytes.
    """
    if isinstance(images, ReferencedImages) and len(indices) * 3 * images.side**2 > max_bytes:
        return images.select(indices)
    return images[indices]
