"""The images of a preview: a seeded sample of the choosing half of every task, balanced over its classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from merging.base.errors import ParameterError
from merging.images.benchmarks.benchmark import SPLITS, Benchmark
from merging.images.benchmarks.referenced_images import Images, select_images

HALF = SPLITS[0]  # values are chosen on this half; a preview must not use the other half
STAGE_SIZES = (8, 16, 32, 64)  # numbers of images per task after which a preview is shown
BATCH_SIZE = 128  # images that run at a time, of all tasks together

Pixels = NDArray[np.uint8]  # (n, height, width, 3)


@dataclass(frozen=True, slots=True)
class PreviewSample:
    """The number of images of every task in a preview (None: all of the choosing half), and the seed that chooses them.

    A sample of m images contains every smaller sample with the same seed. Raises ParameterError for a number below 1.
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
        """The indices (m,) of the sampled images among the n of a task, in sampling order; ``labels`` (n,).

        After any number of images, the counts of two classes that both have images left differ by at most one.
        """
        generator = np.random.default_rng(self.seed)
        shuffled = generator.permutation(len(labels))
        classes = labels[shuffled]
        rounds = np.empty(len(labels), dtype=np.int64)  # the number of images of its class before each image
        for number in np.unique(classes):
            rounds[classes == number] = np.arange((classes == number).sum())
        # The position of each class in every round.
        class_order = generator.permutation(int(labels.max(initial=-1)) + 1)
        order: NDArray[np.int64] = shuffled[np.lexsort((class_order[classes], rounds))]
        return order[: self.per_task]

    def stages(self) -> tuple[PreviewSample, ...]:
        """The smaller samples whose previews come first, and then this one."""
        smaller = [size for size in STAGE_SIZES if self.per_task is None or size < self.per_task]
        return (*(PreviewSample(size, self.seed) for size in smaller), self)


@dataclass(frozen=True, eq=False)
class SampledTask:
    """The sampled images of one task in sampling order; ``positions`` (n,) are their indices in the choosing half."""

    key: str
    images: Images
    labels: NDArray[np.int64]
    positions: NDArray[np.int64]


def sample_tasks(benchmark: Benchmark, sample: PreviewSample) -> dict[str, SampledTask]:
    """{task: its sampled images}, in the order of the benchmark; fewer if a task has fewer.

    Raises:
        TaskError: images cannot be read.
    """
    tasks = {}
    for task in benchmark.tasks:
        images, labels = benchmark.load_images(task.key, HALF)
        positions = sample.sample_order(labels)
        tasks[task.key] = SampledTask(task.key, select_images(images, positions), labels[positions], positions)
    return tasks


@dataclass(frozen=True, eq=False)
class ImageBatch:
    """Images that run together. Batches with the same ``key`` hold the same images.

    ``parts`` are (task, its rows in the batch, the index of the first of them in the task's sampling order).
    """

    key: tuple[object, ...]
    images: Pixels
    parts: tuple[tuple[str, slice, int], ...]


def image_batches(
    sampled: Mapping[str, SampledTask], tasks: Sequence[str], start: int, stop: int | None, name: str
) -> Iterator[ImageBatch]:
    """Images ``start`` to ``stop`` of the samples of ``tasks``, at most ``BATCH_SIZE`` at a time, task after task.

    ``name`` identifies benchmark and seed in the keys, so that the same batches have the same keys for other models.
    """
    rows = [(key, index) for key in tasks for index in range(start, len(sampled[key].labels[:stop]))]
    for first_row in range(0, len(rows), BATCH_SIZE):
        batch_rows = rows[first_row : first_row + BATCH_SIZE]
        images, parts = [], []
        row = 0
        for key in dict.fromkeys(key for key, _ in batch_rows):
            indices = [index for task, index in batch_rows if task == key]
            images.append(sampled[key].images[indices[0] : indices[-1] + 1])
            parts.append((key, slice(row, row + len(indices)), indices[0]))
            row += len(indices)
        content = tuple((key, first, span.stop - span.start) for key, span, first in parts)
        yield ImageBatch((name, content), np.concatenate(images), tuple(parts))
