"""Samples images of a data set into the arrays of a benchmark; few images are in memory at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from merging.base.errors import TaskError
from merging.base.files import npz
from merging.base.files.npz import ArrayInfo
from merging.base.progress import Meter
from merging.base.text import first_few
from merging.images.benchmarks import data_set_locations
from merging.images.benchmarks.build.data_set_split import PartOrder, Split
from merging.images.benchmarks.build.image_stores import (
    Arrays,
    ImageLocations,
    ImageStore,
    StoredPixels,
    build_identifying_arrays,
)
from merging.images.data_sets.labeled_images import DataSet

MAX_DAMAGED_SHARE = 0.1  # of the images of a sample; with more damaged ones a data set is refused
EARLY_CHECK_COUNT = 100  # damaged images from which that share is checked before the sample is complete


@dataclass(frozen=True, slots=True)
class SampleLimits:
    """The largest numbers of images in each half (or in a whole test set) and of exemplars; 0 takes all."""

    images: int
    exemplars: int

    def count_sampled(self, split: Split) -> int:
        """The largest number of images that are sampled from a data set."""
        test, training = len(split.test[1]), len(split.exemplars[1]) if split.exemplars else 0
        choosing = len(split.choosing[1]) if split.choosing else 0
        sampled = min(test, self.count_tested(split)) if self.images else test
        sampled += min(choosing, self.images) if self.images else choosing
        return sampled + (min(training, self.exemplars) if self.exemplars else training)

    def count_tested(self, split: Split) -> int:
        """Number of images to sample from the test part."""
        return self.images if split.whole else 2 * self.images


@dataclass
class SampledImages:
    """Sampled images as (number in the ``ImageStore``, label), and the problems of damaged images."""

    images: list[tuple[int, int]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    tried_count: int = 0


def sample_images(
    store: ImageStore, part_order: PartOrder | None, count: int, meter: Meter, title: str
) -> SampledImages:
    """The first ``count`` images of an order that can be read (0: all); a damaged one is replaced by the next.

    Raises:
        TaskError: more than a tenth of the images that were tried are damaged; the message names the first.
    """
    sample, numbers = SampledImages(), dict[int, int]()  # index in the part -> number in the store
    if part_order is None:
        return sample
    part, order = part_order
    count = min(count, len(order)) if count else len(order)
    while len(numbers) < count and sample.tried_count < len(order):
        batch = order[sample.tried_count : sample.tried_count + count - len(numbers)].tolist()
        sample.tried_count += len(batch)
        for seen_count, (index, pixels) in enumerate(store.read_squares(part, sorted(batch)), start=1):
            if isinstance(pixels, TaskError):
                sample.problems.append(str(pixels))
                _refuse_if_many(
                    sample.problems, seen_count if len(sample.problems) > EARLY_CHECK_COUNT else len(order), title
                )
            else:
                numbers[index] = store.add(part, index, pixels)
            meter.advance(1, "Reading images", title)
        _refuse_if_many(sample.problems, sample.tried_count, title)
    labels = store.data.parts[part]
    tried_indices = order[: sample.tried_count].tolist()
    sample.images = [(numbers[index], int(labels[index])) for index in tried_indices if index in numbers]
    return sample


def _refuse_if_many(problems: Sequence[str], image_count: int, title: str) -> None:
    if len(problems) > max(1.0, MAX_DAMAGED_SHARE * image_count):
        raise TaskError(f"{title}: {len(problems)} of {image_count} images cannot be read: {first_few(problems, 3)}")


@dataclass(frozen=True)
class WrittenTask:
    """The result for a data set: the number of images per split, and the problems of damaged images.

    ``overlap`` counts test images that are exemplars, too. ``sources`` has for each split the part of the data set and
    the number of images in it.
    """

    counts: dict[str, int]
    problems: tuple[str, ...]
    overlap: int
    sources: dict[str, tuple[str, int]]


def write_task(
    path: Path,
    data: DataSet,
    split: Split,
    size: int,
    limits: SampleLimits,
    meter: Meter,
    title: str,
    by_reference: bool,
) -> WrittenTask:
    """Write a task's npz as ``Benchmark`` reads it; ``by_reference`` stores positions in files instead of pixels.

    Raises:
        TaskError: too many images are damaged, fewer than two are left to test on, or images cannot be referenced.
    """
    store = ImageLocations(data, size) if by_reference else StoredPixels(data, size, path.with_suffix(".pixels"))
    with contextlib.closing(store):
        exemplars = sample_images(store, split.exemplars, limits.exemplars, meter, title)
        test_sample = sample_images(store, split.test, limits.count_tested(split), meter, title)
        choosing = sample_images(store, split.choosing, limits.images, meter, title)
        middle = 0 if split.whole else len(test_sample.images) // 2
        if len(test_sample.images) < 2:
            raise TaskError(f"{title} has {len(test_sample.images)} images to test on; at least two are needed.")
        parts = {
            "exemplar": exemplars.images, "choosing": choosing.images or test_sample.images[:middle],
            "reporting": test_sample.images[middle:],
        }  # fmt: skip
        parts = {name: images for name, images in parts.items() if images}
        arrays = dict(_build_arrays(parts, store))
        if isinstance(store, ImageLocations):
            files = store.list_locations()
            data_set_locations.write_locations(path, files)
            arrays |= dict(build_identifying_arrays(files))
        npz.write_npz(path, arrays)
        exemplar_digests = {store.digest(number) for number, _ in exemplars.images}
        overlap = sum(store.digest(number) in exemplar_digests for number, _ in test_sample.images)
    counts = {name: len(images) for name, images in parts.items()}
    return WrittenTask(
        counts, (*exemplars.problems, *test_sample.problems, *choosing.problems), overlap, _find_sources(split, parts)
    )


def _find_sources(split: Split, parts: Mapping[str, object]) -> dict[str, tuple[str, int]]:
    sources = {"exemplar": split.exemplars, "choosing": split.choosing or split.test, "reporting": split.test}
    return {name: (order[0], len(order[1])) for name, order in sources.items() if order and name in parts}


def _build_arrays(parts: Mapping[str, Sequence[tuple[int, int]]], store: ImageStore) -> Arrays:
    for name, sample in parts.items():
        images = [sample[position] for position in store.sort_images([number for number, _ in sample])]
        yield from store.build_arrays(name, [number for number, _ in images])
        labels = np.array([label for _, label in images], dtype=np.int64)
        yield f"{name}_labels", (ArrayInfo(labels.shape, labels.dtype), iter([labels.tobytes()]))
