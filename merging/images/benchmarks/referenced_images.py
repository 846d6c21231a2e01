"""Images of a split that are decoded when they are needed, used like the array that they would fill."""

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
from merging.images.benchmarks.image_decoding import CHUNK, Pixels, decode_images, stack_pixels
from merging.images.data_sets.image_references import ImageReference

CACHED_IMAGES = 256  # single images that stay in memory, for pages that show them again and again
MAX_DECODED_BYTES = 1 << 26  # bytes of decoded images of a split that stay in memory
PLACES_ARRAY = "places"  # the array of a split (n, 3), see ``ReferencedImages``


@dataclass
class _ImageCache:
    """Images that were asked for singly, by their place; the ones that were not used for longest are dropped."""

    images: OrderedDict[bytes, Pixels] = field(default_factory=OrderedDict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, key: bytes, compute: Callable[[], Pixels]) -> Pixels:
        with self.lock:
            if key in self.images:
                self.images.move_to_end(key)
                return self.images[key]
        pixels = compute()
        pixels.flags.writeable = False  # sessions share it
        with self.lock:
            self.images[key] = pixels
            while len(self.images) > CACHED_IMAGES:
                self.images.popitem(last=False)
        return pixels


@dataclass(frozen=True, eq=False)
class ReferencedImages:
    """Images (n, side, side, 3) as uint8 that lie in files. ``places`` (n, 3) are those of their bytes.

    A place is the number of the file, then either a row of a table and 0, or the offset and size of bytes. An index
    gives one image, a slice or an array an array of images, as with an array in memory; only these are decoded. Raises
    TaskError where an image cannot be decoded.
    """

    files: Sequence[Location]
    positions: NDArray[np.int64]
    side: int
    _cache: _ImageCache = field(default_factory=_ImageCache, repr=False)

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """That of all images."""
        return len(self), self.side, self.side, 3

    @property
    def nbytes(self) -> int:
        """Bytes that are in memory."""
        return self.positions.nbytes + len(self._cache.images) * 3 * self.side**2

    def __getitem__(self, at: Any) -> Pixels:
        if isinstance(at, int | np.integer):
            return self._cache.get(self.positions[at].tobytes(), lambda: self.select([at]).decode()[0])
        return self.select(at).decode()

    def select(self, indices: Any) -> ReferencedImages:
        """The images at these places, which are not decoded yet."""
        return replace(self, positions=self.positions[indices])

    def decode(self) -> Pixels:
        """All images (n, side, side, 3), in memory; files are read in the order of their rows."""
        pixels, start = np.empty(self.shape, np.uint8), 0
        order = np.lexsort(self.positions.T[::-1])
        with decode_images(self.select(order).references(), self.side, stack_pixels) as chunks:
            for chunk in chunks:
                pixels[order[start : start + len(chunk)]] = chunk
                start += len(chunk)
        return pixels

    def references(self) -> list[ImageReference]:
        """Where each image lies."""
        return [self._reference(*place) for place in self.positions.tolist()]

    def _reference(self, number: int, at: int, size: int) -> ImageReference:
        file = self.files[number]
        if file.column:
            return ImageReference(file.file, row=at, column=file.column)
        return ImageReference(file.file, offset=at, size=size)

    @contextmanager
    def batches(
        self, size: int, prepare: Callable[[Pixels], Tensor], workers: int | None = None
    ) -> Iterator[Iterator[Tensor]]:
        """Prepared images, at most ``size`` at a time, each batch made while the one before it is in use."""
        each = min(size, CHUNK)

        def joined(chunks: Iterator[Tensor]) -> Iterator[Tensor]:
            while batch := list(islice(chunks, size // each)):
                yield torch.cat(batch)

        with (
            decode_images(
                self.references(), self.side, lambda squares: prepare(stack_pixels(squares)), each, workers
            ) as chunks,
            prefetch(joined(chunks)) as batches,
        ):
            yield batches


def build_referenced(files: Sequence[Location], places: NDArray[Any], side: int, name: str) -> ReferencedImages:
    """Images (side, side, 3) at places (n, 3); none is decoded yet.

    Raises:
        TaskError: the places do not fit the files; ``name`` is what they were read from.
    """
    if places.ndim != 2 or places.shape[1] != 3 or places.dtype.kind not in "iu":
        raise TaskError(
            f"{name}: places of images must be three whole numbers each; got {places.dtype} {places.shape}."
        )
    if places.size and (places.min() < 0 or places[:, 0].max() >= len(files)):
        raise TaskError(f"{name} refers to images outside of its {len(files)} files.")
    return ReferencedImages(files, places.astype(np.int64), side)


Images: TypeAlias = NDArray[np.uint8] | ReferencedImages


def select_images(images: Images, indices: NDArray[Any], most: int = MAX_DECODED_BYTES) -> Images:
    """Some of the images, to be used again and again: in memory if they take at most so many bytes, or are there."""
    if isinstance(images, ReferencedImages) and len(indices) * 3 * images.side**2 > most:
        return images.select(indices)
    return images[indices]
