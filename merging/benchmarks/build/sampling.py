"""Draws images of a data set, as a tower sees them, into the arrays of a benchmark; memory holds one at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from merging.benchmarks.build.splits import Order, Split
from merging.clip.preprocess import square
from merging.datasets.base import DataSet
from merging.errors import TaskError
from merging.files import npz
from merging.files.npz import ArrayInfo
from merging.progress import Meter
from merging.text import first_few

TOLERATED = 0.1  # share of images that may be damaged before a data set is refused
EARLY = 100  # damaged images after which that share is checked before the draw is complete


class Pixels:
    """Squares of pixels on disk, in the order in which they were added; the file is deleted when it is closed."""

    def __init__(self, path: Path, size: int) -> None:
        self.size, self.nbytes, self.count = size, size * size * 3, 0
        self._path = path
        self._file = path.open("w+b")

    def add(self, pixels: NDArray[np.uint8]) -> int:
        """Store an image; gives its number."""
        self._file.seek(self.count * self.nbytes)
        self._file.write(pixels.tobytes())
        self.count += 1
        return self.count - 1

    def read(self, number: int) -> bytes:
        """An image's bytes."""
        self._file.seek(number * self.nbytes)
        return self._file.read(self.nbytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()
        self._path.unlink(missing_ok=True)


@dataclass
class SampledBenchmark:
    """The images kept by a draw, as (number, label) in its order, and the problems of the damaged ones."""

    taken: list[tuple[int, int]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    tried: int = 0


def draw(
    data: DataSet, part: str, order: Order, count: int, pixels: Pixels, meter: Meter, title: str
) -> SampledBenchmark:
    """The first ``count`` images of an order that can be read (0: all); a damaged one is replaced by the next.

    Raises:
        TaskError: more than a tenth of the images that were tried are damaged; names the first of them.
    """
    sample, kept = SampledBenchmark(), dict[int, int]()
    count = min(count, len(order)) if count else len(order)
    while len(kept) < count and sample.tried < len(order):
        batch = order[sample.tried : sample.tried + count - len(kept)].tolist()
        sample.tried += len(batch)
        for seen, (index, picture) in enumerate(data.pictures(part, sorted(batch)), start=1):
            try:
                if isinstance(picture, TaskError):
                    raise picture
                kept[index] = pixels.add(square(picture, pixels.size, f"image {index}"))
            except TaskError as error:
                sample.problems.append(str(error))
                _refuse_if_many(sample.problems, seen if len(sample.problems) > EARLY else len(order), title)
            meter.advance(1, "Reading images", title)
        _refuse_if_many(sample.problems, sample.tried, title)
    labels = data.parts[part]
    sample.taken = [(kept[index], int(labels[index])) for index in order[: sample.tried].tolist() if index in kept]
    return sample


def _refuse_if_many(problems: Sequence[str], tried: int, title: str) -> None:
    if len(problems) > max(1.0, TOLERATED * tried):
        raise TaskError(f"{title}: {len(problems)} of {tried} images cannot be read: {first_few(problems, 3)}")


@dataclass(frozen=True)
class Written:
    """The result for a data set: images per split, problems of damaged ones, and test images that are exemplars too."""

    counts: dict[str, int]
    problems: tuple[str, ...]
    overlap: int


def write_task(
    path: Path, data: DataSet, split: Split, size: int, images: int, exemplars: int, meter: Meter, title: str
) -> Written:
    """Write a task's npz as ``Benchmark`` reads it; at most ``images`` in each half and ``exemplars`` (0: all).

    Raises:
        TaskError: too many damaged images, or fewer than two to test on.
    """
    with Pixels(path.with_suffix(".pixels"), size) as pixels:
        exemplar_sample = (
            SampledBenchmark()
            if split.exemplars is None
            else draw(data, *split.exemplars, exemplars, pixels, meter, title)
        )
        test_sample = draw(data, *split.test, 2 * images, pixels, meter, title)
        middle = len(test_sample.taken) // 2
        if not middle:
            raise TaskError(f"{title} has {len(test_sample.taken)} images to test on; at least two are needed.")
        parts = {"exemplar": exemplar_sample.taken} if exemplar_sample.taken else {}
        parts |= {"choosing": test_sample.taken[:middle], "reporting": test_sample.taken[middle:]}
        npz.write(path, dict(_arrays(parts, pixels)))
        seen = {_mark(pixels, number) for number, _ in exemplar_sample.taken}
        overlap = sum(_mark(pixels, number) in seen for number, _ in test_sample.taken)
    counts = {name: len(taken) for name, taken in parts.items()}
    return Written(counts, (*exemplar_sample.problems, *test_sample.problems), overlap)


def _mark(pixels: Pixels, number: int) -> bytes:
    return hashlib.sha256(pixels.read(number)).digest()


def _arrays(
    parts: Mapping[str, Sequence[tuple[int, int]]], pixels: Pixels
) -> Iterator[tuple[str, tuple[ArrayInfo, Iterator[bytes]]]]:
    for name, taken in parts.items():
        shape = (len(taken), pixels.size, pixels.size, 3)
        rows = (pixels.read(number) for number, _ in list(taken))
        yield f"{name}_images", (ArrayInfo(shape, np.dtype(np.uint8)), rows)
        labels = np.array([label for _, label in taken], dtype=np.int64)
        yield f"{name}_labels", (ArrayInfo(labels.shape, labels.dtype), iter([labels.tobytes()]))


def budget(data: DataSet, split: Split, images: int, exemplars: int) -> int:
    """Number of images that ``write_task`` will keep at most."""
    training = 0 if split.exemplars is None else len(split.exemplars[1])
    test = len(split.test[1])
    return (min(training, exemplars) if exemplars else training) + (min(test, 2 * images) if images else test)
