"""The missing points of a sweep, one after another here, or on workers.

Workers compute; this process stores each point as soon as it is there, so that a lost worker leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from merging.errors import MergingError
from merging.runs.estimate import EVALUATING, MERGING
from merging.runs.store import Store
from merging.sweeps import points
from merging.sweeps.points import Point
from merging.sweeps.sweep import NamedPoint
from merging.sweeps.wire import point_of
from merging.tasks.context import Context
from merging.tasks.kinds import POINT, Plain
from merging.workers.fan_out import WorkerTask
from merging.workers.task_map import TaskMap
from merging.workers.workers import Workers

STAGES = (MERGING, EVALUATING)
WRITERS = 8  # threads that store what workers compute: most of it is waiting for the disk


class PointComputation(NamedTuple):
    """How a point is computed here, with the facts about it, and what a worker is asked for it."""

    compute: Callable[[NamedPoint, Context], tuple[Point, Plain]]
    request: Callable[[NamedPoint], Plain]


def compute_points(
    missing: Sequence[NamedPoint],
    total: int,
    store: Store,
    computation: PointComputation,
    workers: Workers | None,
    context: Context,
) -> dict[str, MergingError]:
    """Compute points, of so many in all, and store each unless another sweep has; the errors of those that fail.

    Raises:
        StoreError: the disk cannot be written to. Cancelled, Paused: as asked. WorkersGone: there was no worker for a
            minute. Finished points are kept.
    """
    before = total - len(missing)

    def compute(planned: NamedPoint, number: int, part: Context) -> tuple[Point, Plain]:
        return computation.compute(planned, part.saying(f"Point {number} of {total}"))

    tasks = [
        WorkerTask(planned.name, partial(computation.request, planned), partial(compute, planned, before + number))
        for number, planned in enumerate(missing, 1)
    ]
    with ThreadPoolExecutor(WRITERS) as pool:
        writer = _Writer(store, pool if workers is not None else None)

        def take(task: WorkerTask, answer: tuple[Point, Plain]) -> None:
            writer.write(*answer)
            for warning in answer[1].get("warnings", ()):
                context.warn(warning)

        work = TaskMap(POINT, context, lambda _, said: point_of(said), take, total=total)
        work.is_there = lambda task: points.find(store, task.name) is not None
        failures = work.run(tasks, workers)
        writer.finish()
    return failures


@dataclass
class _Writer:
    """Stores points, in the threads of a pool if there is one."""

    store: Store
    pool: ThreadPoolExecutor | None
    writing: list[Future[None]] = field(default_factory=list)

    def write(self, point: Point, about: Plain) -> None:
        """Store a point; raises StoreError if it, or an earlier one, could not be stored."""
        if self.pool is None:
            points.write(self.store, point, about)
            return
        for finished in [future for future in self.writing if future.done()]:
            self.writing.remove(finished)
            finished.result()
        self.writing.append(self.pool.submit(points.write, self.store, point, about))

    def finish(self) -> None:
        """Wait for the last points. Raises StoreError if one could not be stored."""
        for future in self.writing:
            future.result()
