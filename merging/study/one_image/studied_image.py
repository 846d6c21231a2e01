"""The image that models are compared on, with the classes among which they choose."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from merging.base.errors import TaskError
from merging.base.text import did_you_mean, printable
from merging.images.benchmarks.benchmark import EXEMPLARS, SPLITS
from merging.images.own_image import own_image

if TYPE_CHECKING:
    from merging.images.benchmarks.benchmark import Benchmark, Task

OWN = "own"  # the first part of the name of an image that is in no data set
DIGITS = 12


@dataclass(frozen=True, eq=False)
class StudiedImage:
    """An image as a tower sees it, and the head whose classes are asked for.

    ``pixels`` are (s, s, 3), ``inputs`` the same preprocessed (1, 3, s, s), ``head`` unit rows (C, e) whose cosines
    ``scale`` turns into logits. ``label`` is the class's number, None if nothing says what the image shows. The name
    is "TASK:SPLIT:N", or "own:" with digits of the pixels' hash.
    """

    name: str
    task: Task
    pixels: NDArray[np.uint8]
    inputs: Tensor
    head: Tensor
    scale: float
    label: int | None = None

    @property
    def is_own(self) -> bool:
        """Whether it is in no data set of the benchmark."""
        return self.name.startswith(f"{OWN}:")

    def class_name(self, number: int) -> str:
        """The name of a class."""
        return self.task.class_names[number]


def split_name(name: str) -> tuple[str, str, int]:
    """The data set, the split and the number that a name states.

    Raises:
        TaskError: it is not TASK:SPLIT:N.
    """
    task, _, rest = name.partition(":")
    split, _, number = rest.partition(":")
    if split not in (*SPLITS, EXEMPLARS) or not number.isdecimal() or not number.isascii():
        raise TaskError(
            f"{printable(name)!r} names no image. Write TASK:SPLIT:N, with the split {', '.join(SPLITS)} or "
            f"{EXEMPLARS} and a number from 0, such as digits:reporting:17.{did_you_mean(split, SPLITS)}"
        )
    return task, split, int(number)


def find_image(benchmark: Benchmark, name: str, head: str = "") -> StudiedImage:
    """The image of a data set by its name; ``head`` is the data set whose classes are asked for, by default its own.

    Raises:
        TaskError: there is no such data set, split or image.
    """
    key, split, number = split_name(name)
    images, labels = benchmark.images(key, split)
    if number >= len(images):
        raise TaskError(f"{key} has {len(images)} images in the split {split!r}, numbered from 0; got {number}.")
    label = int(labels[number]) if head in ("", key) else None
    return _make_studied(benchmark, f"{key}:{split}:{number}", head or key, images[number], label)


def read_image_file(benchmark: Benchmark, data: bytes, file_name: str, head: str) -> StudiedImage:
    """An image from the bytes of a file, prepared as the benchmark's images are; nothing says what it shows.

    Raises:
        TaskError: it is no picture that can be used (``own_image``), or there is no such data set.
    """
    return image_from_pixels(benchmark, own_image(data, file_name, benchmark.image_size), head)


def image_from_pixels(benchmark: Benchmark, pixels: NDArray[np.uint8], head: str) -> StudiedImage:
    """An image in no data set from its pixels (s, s, 3), which are as large as a tower's images.

    Raises:
        TaskError: there is no such data set.
    """
    name = f"{OWN}:{hashlib.sha256(pixels.tobytes()).hexdigest()[:DIGITS]}"
    return _make_studied(benchmark, name, head, pixels, None)


def _make_studied(
    benchmark: Benchmark, name: str, head: str, pixels: NDArray[np.uint8], label: int | None
) -> StudiedImage:
    task = benchmark.task(head)
    inputs = benchmark.preprocess(np.ascontiguousarray(pixels)[None])
    return StudiedImage(name, task, pixels, inputs, benchmark.head(head), benchmark.logit_scale, label)
