"""The images of a preview: a seeded draw from the choosing half of every task, balanced over its classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from merging.base.errors import ParameterError
from merging.images.benchmarks.benchmark import SPLITS, Benchmark
from merging.images.benchmarks.referenced_images import Images, select_images

HALF = SPLITS[0]  # values are chosen on this half, so nothing that is tried out may see the other one
STAGES = (8, 16, 32, 64)  # images a task, after each of which there is an answer
BATCH = 128  # images that run at a time, of all tasks together

Pixels = NDArray[np.uint8]  # (n, height, width, 3)


@dataclass(frozen=True, slots=True)
class PreviewSample:
    """How many images of every task a preview sees (None: all of the choosing half), and which.

    The draw of m images holds that of every smaller m with the same seed. Raises ParameterError for a number below 1.
    """

    per_task: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value, low in (("per_task", self.per_task, 1), ("seed", self.seed, 0)):
            if value is None and name == "per_task":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < low:
                raise ParameterError(f"A preview's {name} is a whole number of at least {low}; got {value!r}.")

    def sample_order(self, labels: NDArray[np.int64]) -> NDArray[np.int64]:
        """The places of the drawn images among all of one task, first drawn first; ``labels`` (n,) are their classes.

        After any number of images, no class has two more than another that has images left.
        """
        generator = np.random.default_rng(self.seed)
        shuffled = generator.permutation(len(labels))
        classes = labels[shuffled]
        rounds = np.empty(len(labels), dtype=np.int64)  # how many of its class come before an image
        for one in np.unique(classes):
            rounds[classes == one] = np.arange((classes == one).sum())
        turns = generator.permutation(int(labels.max(initial=-1)) + 1)  # the turn of each class in every round
        order: NDArray[np.int64] = shuffled[np.lexsort((turns[classes], rounds))]
        return order[: self.per_task]

    def stages(self) -> tuple[PreviewSample, ...]:
        """The smaller samples that are answered on the way to this one, and this one last."""
        smaller = [size for size in STAGES if self.per_task is None or size < self.per_task]
        return (*(PreviewSample(size, self.seed) for size in smaller), self)


@dataclass(frozen=True, eq=False)
class SampledTask:
    """The drawn images of one task in the order of the draw; ``places`` (n,) are theirs in the choosing half."""

    key: str
    images: Images
    labels: NDArray[np.int64]
    places: NDArray[np.int64]


def sample_tasks(benchmark: Benchmark, sample: PreviewSample) -> dict[str, SampledTask]:
    """{task: its drawn images}, in the order of the benchmark; fewer where a task has fewer.

    Raises:
        TaskError: images cannot be read.
    """
    tasks = {}
    for task in benchmark.tasks:
        images, labels = benchmark.images(task.key, HALF)
        places = sample.sample_order(labels)
        tasks[task.key] = SampledTask(task.key, select_images(images, places), labels[places], places)
    return tasks


@dataclass(frozen=True, eq=False)
class ImageBatch:
    """Images that run together. Batches with one ``key`` hold the same images.

    ``parts`` are (task, its rows here, the place of the first of them in the order of the task's draw).
    """

    key: tuple[object, ...]
    images: Pixels
    parts: tuple[tuple[str, slice, int], ...]


def image_batches(
    sampled: Mapping[str, SampledTask], tasks: Sequence[str], start: int, stop: int | None, name: str
) -> Iterator[ImageBatch]:
    """Images ``start`` to ``stop`` of the draws of ``tasks``, at most ``BATCH`` at a time, tasks after one another.

    ``name`` tells benchmark and seed apart in the keys, so that the same batches recur for other models.
    """
    rows = [(key, place) for key in tasks for place in range(start, len(sampled[key].labels[:stop]))]
    for at in range(0, len(rows), BATCH):
        chosen = rows[at : at + BATCH]
        images, parts = [], []
        row = 0
        for key in dict.fromkeys(key for key, _ in chosen):
            places = [place for task, place in chosen if task == key]
            images.append(sampled[key].images[places[0] : places[-1] + 1])
            parts.append((key, slice(row, row + len(places)), places[0]))
            row += len(places)
        content = tuple((key, first, span.stop - span.start) for key, span, first in parts)
        yield ImageBatch((name, content), np.concatenate(images), tuple(parts))
