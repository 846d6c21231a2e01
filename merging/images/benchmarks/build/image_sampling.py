"""Draws images of a data set, as a tower sees them, into the arrays of a benchmark; few are in memory at a time."""

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
    identifying_arrays,
)
from merging.images.data_sets.labeled_images import DataSet

TOLERATED = 0.1  # share of images that may be damaged before a data set is refused
EARLY = 100  # damaged images after which that share is checked before the draw is complete


@dataclass(frozen=True, slots=True)
class Amounts:
    """How many images are drawn at most: in each half, or of a whole test set, and exemplars; 0 takes all."""

    images: int
    exemplars: int

    def most(self, split: Split) -> int:
        """Number of images of a data set that are kept at most."""
        test, training = len(split.test[1]), len(split.exemplars[1]) if split.exemplars else 0
        choosing = len(split.choosing[1]) if split.choosing else 0
        kept = min(test, self.tested(split)) if self.images else test
        kept += min(choosing, self.images) if self.images else choosing
        return kept + (min(training, self.exemplars) if self.exemplars else training)

    def tested(self, split: Split) -> int:
        """Number of images to draw from the test part."""
        return self.images if split.whole else 2 * self.images


@dataclass
class SampledImages:
    """The images kept by a draw, as (number, label) in its order, and the problems of the damaged ones."""

    taken: list[tuple[int, int]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    tried: int = 0


def sample_images(
    store: ImageStore, part_order: PartOrder | None, count: int, meter: Meter, title: str
) -> SampledImages:
    """The first ``count`` images of an order that can be read (0: all); a damaged one is replaced by the next.

    Raises:
        TaskError: more than a tenth of the images that were tried are damaged; names the first of them.
    """
    sample, kept = SampledImages(), dict[int, int]()
    if part_order is None:
        return sample
    part, order = part_order
    count = min(count, len(order)) if count else len(order)
    while len(kept) < count and sample.tried < len(order):
        batch = order[sample.tried : sample.tried + count - len(kept)].tolist()
        sample.tried += len(batch)
        for seen, (index, pixels) in enumerate(store.squares(part, sorted(batch)), start=1):
            if isinstance(pixels, TaskError):
                sample.problems.append(str(pixels))
                _refuse_if_many(sample.problems, seen if len(sample.problems) > EARLY else len(order), title)
            else:
                kept[index] = store.add(part, index, pixels)
            meter.advance(1, "Reading images", title)
        _refuse_if_many(sample.problems, sample.tried, title)
    labels = store.data.parts[part]
    sample.taken = [(kept[index], int(labels[index])) for index in order[: sample.tried].tolist() if index in kept]
    return sample


def _refuse_if_many(problems: Sequence[str], tried: int, title: str) -> None:
    if len(problems) > max(1.0, TOLERATED * tried):
        raise TaskError(f"{title}: {len(problems)} of {tried} images cannot be read: {first_few(problems, 3)}")


@dataclass(frozen=True)
class WrittenTask:
    """The result for a data set: images per split, problems of damaged ones, and test images that are exemplars too.

    ``drawn_from`` has for each split the part of the data set, and the number of images there.
    """

    counts: dict[str, int]
    problems: tuple[str, ...]
    overlap: int
    sources: dict[str, tuple[str, int]]


def write_task(
    path: Path, data: DataSet, split: Split, size: int, amounts: Amounts, meter: Meter, title: str, by_reference: bool
) -> WrittenTask:
    """Write a task's npz as ``Benchmark`` reads it; ``by_reference`` stores where images lie in place of pixels.

    Raises:
        TaskError: too many damaged images, fewer than two to test on, or images that cannot be referred to.
    """
    store = ImageLocations(data, size) if by_reference else StoredPixels(data, size, path.with_suffix(".pixels"))
    with contextlib.closing(store):
        exemplars = sample_images(store, split.exemplars, amounts.exemplars, meter, title)
        tested = sample_images(store, split.test, amounts.tested(split), meter, title)
        chosen = sample_images(store, split.choosing, amounts.images, meter, title)
        middle = 0 if split.whole else len(tested.taken) // 2
        if len(tested.taken) < 2:
            raise TaskError(f"{title} has {len(tested.taken)} images to test on; at least two are needed.")
        parts = {
            "exemplar": exemplars.taken, "choosing": chosen.taken or tested.taken[:middle],
            "reporting": tested.taken[middle:],
        }  # fmt: skip
        parts = {name: taken for name, taken in parts.items() if taken}
        arrays = dict(_arrays(parts, store))
        if isinstance(store, ImageLocations):
            files = store.locations()
            data_set_locations.write_locations(path, files)
            arrays |= dict(identifying_arrays(files))
        npz.write_npz(path, arrays)
        seen = {store.mark(number) for number, _ in exemplars.taken}
        overlap = sum(store.mark(number) in seen for number, _ in tested.taken)
    counts = {name: len(taken) for name, taken in parts.items()}
    return WrittenTask(
        counts, (*exemplars.problems, *tested.problems, *chosen.problems), overlap, _drawn_from(split, parts)
    )


def _drawn_from(split: Split, parts: Mapping[str, object]) -> dict[str, tuple[str, int]]:
    sources = {"exemplar": split.exemplars, "choosing": split.choosing or split.test, "reporting": split.test}
    return {name: (drawn[0], len(drawn[1])) for name, drawn in sources.items() if drawn and name in parts}


def _arrays(parts: Mapping[str, Sequence[tuple[int, int]]], store: ImageStore) -> Arrays:
    for name, listed in parts.items():
        taken = [listed[position] for position in store.order([number for number, _ in listed])]
        yield from store.arrays(name, [number for number, _ in taken])
        labels = np.array([label for _, label in taken], dtype=np.int64)
        yield f"{name}_labels", (ArrayInfo(labels.shape, labels.dtype), iter([labels.tobytes()]))
