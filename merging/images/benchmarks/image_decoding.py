"""Decodes images of files in several threads, in order: Pillow decodes and resizes without holding Python's lock."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from merging.base.errors import TaskError
from merging.base.parallel import map_in_threads, prefetch
from merging.base.threads import ONE_THREAD
from merging.images.data_sets.image_references import ImageReference, read_encoded
from merging.images.preprocess import crop_square, read_image

T = TypeVar("T")
CHUNK_SIZE = 8  # images that one thread decodes before it takes the next ones
MAX_THREADS = 16
Pixels = NDArray[np.uint8]
Square = Pixels | TaskError  # pixels (side, side, 3), or the error


def count_threads() -> int:
    """The number of decoding threads: one per core; they share the cores with forward passes on a CPU."""
    return min(MAX_THREADS, os.cpu_count() or 1)


@contextmanager
def decode_images(
    references: Sequence[ImageReference],
    side: int,
    process: Callable[[Sequence[Square]], T],
    chunk_size: int = CHUNK_SIZE,
    workers: int | None = None,
) -> Iterator[Iterator[T]]:
    """The results of ``process`` for ``chunk_size`` images (side, side, 3) at a time, in their order.

    One thread reads the files, ``workers`` threads decode and call ``process``. A few chunks are in memory, and the
    results do not depend on the number of threads.
    """
    workers = workers or count_threads()

    def read() -> Iterator[list[tuple[ImageReference, bytes | TaskError]]]:
        pairs = zip(references, read_encoded(references), strict=True)
        while chunk := list(islice(pairs, chunk_size)):
            yield chunk

    def decode(chunk: Sequence[tuple[ImageReference, bytes | TaskError]]) -> T:
        return process([_decode_square(data, reference, side) for reference, data in chunk])

    with (
        prefetch(read()) as chunks,
        map_in_threads((partial(decode, chunk) for chunk in chunks), workers, 2 * workers, ONE_THREAD) as results,
    ):
        yield results


def _decode_square(data: bytes | TaskError, reference: ImageReference, side: int) -> Square:
    """The pixels (side, side, 3) of an encoded image, equal to those that ``benchmark make`` stores; or the error."""
    if isinstance(data, TaskError):
        return data
    try:
        return crop_square(read_image(data, reference.label), side, reference.label)
    except TaskError as error:
        return error


def stack_pixels(squares: Sequence[Square]) -> Pixels:
    """Images (n, side, side, 3) from their squares; raises the TaskError of an image that has no pixels."""
    for square in squares:
        if isinstance(square, TaskError):
            raise square
    return np.stack([square for square in squares if not isinstance(square, TaskError)])
