"""Decodes images of files by several threads, in order: Pillow decodes and resizes without holding Python's lock."""

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
from merging.images.preprocess import read_image, square

T = TypeVar("T")
CHUNK = 8  # images that one thread decodes before it takes the next ones
MOST_THREADS = 16
Pixels = NDArray[np.uint8]
Square = Pixels | TaskError  # pixels (side, side, 3), or why there are none


def threads() -> int:
    """How many threads decode: as many as there are cores, which they share with the forward passes on a CPU."""
    return min(MOST_THREADS, os.cpu_count() or 1)


@contextmanager
def decode_images(
    references: Sequence[ImageReference],
    side: int,
    process: Callable[[Sequence[Square]], T],
    each: int = CHUNK,
    workers: int | None = None,
) -> Iterator[Iterator[T]]:
    """What ``then`` makes of the images, ``each`` of them at a time, in their order.

    One thread reads the files, ``workers`` threads decode and call ``then``. A few chunks are in memory, and the
    results do not depend on the number of threads.
    """
    workers = workers or threads()

    def read() -> Iterator[list[tuple[ImageReference, bytes | TaskError]]]:
        pairs = zip(references, read_encoded(references), strict=True)
        while chunk := list(islice(pairs, each)):
            yield chunk

    def decoded(chunk: Sequence[tuple[ImageReference, bytes | TaskError]]) -> T:
        return process([_square(data, reference, side) for reference, data in chunk])

    with (
        prefetch(read()) as chunks,
        map_in_threads((partial(decoded, chunk) for chunk in chunks), workers, 2 * workers, ONE_THREAD) as results,
    ):
        yield results


def _square(data: bytes | TaskError, reference: ImageReference, side: int) -> Square:
    """The pixels as a tower sees them, as ``benchmark make`` stores them."""
    if isinstance(data, TaskError):
        return data
    try:
        return square(read_image(data, reference.label), side, reference.label)
    except TaskError as error:
        return error


def stack_pixels(squares: Sequence[Square]) -> Pixels:
    """Images (n, side, side, 3); raises TaskError if there are no pixels of one."""
    for one in squares:
        if isinstance(one, TaskError):
            raise one
    return np.stack([one for one in squares if not isinstance(one, TaskError)])
