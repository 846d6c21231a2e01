"""The missing points of a sweep, one after another here, or on workers.

Workers compute; this process stores each point as soon as it is there, so that a lost worker leaves nothing behind.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

from merging.base.errors import MergingError, Paused
from merging.study.runs.estimate import EVALUATING, MERGING
from merging.study.runs.run_store import Store
from merging.study.sweeps import points
from merging.study.sweeps.points import Point
from merging.study.sweeps.sweep import NamedPoint
from merging.tasks.context import Context
from merging.tasks.kinds import POINT, Plain
from merging.tasks.workers.fan_out import WorkerTask
from merging.tasks.workers.task_map import TaskMap
from merging.tasks.workers.workers import Workers

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
        return computation.compute(planned, part.with_phase(f"Point {number} of {total}"))

    tasks = [
        WorkerTask(planned.name, partial(computation.request, planned), partial(compute, planned, before + number))
        for number, planned in enumerate(missing, 1)
    ]
    with ThreadPoolExecutor(WRITERS) as pool:
        writing = deque[Future[None]]()

        def take(task: WorkerTask, answer: tuple[Point, Plain]) -> None:
            writing.append(pool.submit(points.write_point, store, *answer))
            while writing and (workers is None or writing[0].done()):
                writing.popleft().result()
            for warning in answer[1].get("warnings", ()):
                context.warn(warning)

        work = TaskMap(POINT, context, lambda _, said: (Point.from_plain(said), dict(said["about"])), take, total=total)
        work.is_there = lambda task: points.find_point(store, task.name) is not None
        try:
            failures = work.run(tasks, workers)
        except Paused:  # what it says is stored must be
            _wait(writing)
            raise
        _wait(writing)
    return failures


def _wait(writing: Iterable[Future[None]]) -> None:
    """Wait until points are stored. Raises StoreError if one cannot be."""
    for written in writing:
        written.result()
