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
from merging.images.own_image import read_own_image

if TYPE_CHECKING:
    from merging.images.benchmarks.benchmark import Benchmark, Task

OWN_PREFIX = "own"  # the first part of the name of an image that is in no data set
DIGITS = 12  # of the pixels' hash in such a name


@dataclass(frozen=True, eq=False)
class StudiedImage:
    """An image as a tower's input, and the head with the classes among which models choose.

    ``pixels`` are (s, s, 3), ``inputs`` the same preprocessed (1, 3, s, s), ``head`` unit rows (C, e) whose cosines
    times ``scale`` are logits. ``label`` is the number of the image's class, None if it is unknown. The name is
    "TASK:SPLIT:N", or "own:" with digits of the pixels' hash.
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
        """Whether the image is in no data set of the benchmark."""
        return self.name.startswith(f"{OWN_PREFIX}:")

    def class_name(self, number: int) -> str:
        """The name of a class."""
        return self.task.class_names[number]


def parse_image_name(name: str) -> tuple[str, str, int]:
    """The data set, the split and the number in the name of an image.

    Raises:
        TaskError: the name is not TASK:SPLIT:N.
    """
    task, _, split_and_number = name.partition(":")
    split, _, number = split_and_number.partition(":")
    if split not in (*SPLITS, EXEMPLARS) or not number.isdecimal() or not number.isascii():
        raise TaskError(
            f"{printable(name)!r} names no image. Write TASK:SPLIT:N, with the split {', '.join(SPLITS)} or "
            f"{EXEMPLARS} and a number from 0, such as digits:reporting:17.{did_you_mean(split, SPLITS)}"
        )
    return task, split, int(number)


def find_image(benchmark: Benchmark, name: str, head: str = "") -> StudiedImage:
    """The image of a data set by its name; models choose among the classes of ``head``, by default its own data set.

    Raises:
        TaskError: there is no such data set, split or image.
    """
    key, split, number = parse_image_name(name)
    images, labels = benchmark.load_images(key, split)
    if number >= len(images):
        raise TaskError(f"{key} has {len(images)} images in the split {split!r}, numbered from 0; got {number}.")
    label = int(labels[number]) if head in ("", key) else None
    return _build_image(benchmark, f"{key}:{split}:{number}", head or key, images[number], label)


def read_image_file(benchmark: Benchmark, data: bytes, file_name: str, head: str) -> StudiedImage:
    """An image without a label from the bytes of a file, prepared like the benchmark's images.

    Raises:
        TaskError: the file is not a usable picture (``read_own_image``), or there is no such data set.
    """
    return image_from_pixels(benchmark, read_own_image(data, file_name, benchmark.image_size), head)


def image_from_pixels(benchmark: Benchmark, pixels: NDArray[np.uint8], head: str) -> StudiedImage:
    """An image that is in no data set, from its pixels (s, s, 3), with s the input size of the benchmark's towers.

    Raises:
        TaskError: there is no such data set.
    """
    name = f"{OWN_PREFIX}:{hashlib.sha256(pixels.tobytes()).hexdigest()[:DIGITS]}"
    return _build_image(benchmark, name, head, pixels, None)


def _build_image(
    benchmark: Benchmark, name: str, head: str, pixels: NDArray[np.uint8], label: int | None
) -> StudiedImage:
    task = benchmark.find_task(head)
    inputs = benchmark.preprocess(np.ascontiguousarray(pixels)[None])
    return StudiedImage(name, task, pixels, inputs, benchmark.load_head(head), benchmark.logit_scale, label)
