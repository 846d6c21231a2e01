"""Computes the missing points of a sweep, one after another in this process, or on workers.

Workers only compute. This process stores each point as soon as it arrives, so a lost worker leaves no partial files.
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
WRITER_THREADS = 8  # threads that store the workers' points, which mostly wait for the disk


class PointComputation(NamedTuple):
    """Functions that compute a point, with facts about it, in this process, and make the request to a worker.

    ``unit`` is what a point is in words.
    """

    compute_point: Callable[[NamedPoint, Context], tuple[Point, Plain]]
    make_request: Callable[[NamedPoint], Plain]
    unit: str = "point"


def compute_points(
    missing: Sequence[NamedPoint],
    total: int,
    store: Store,
    computation: PointComputation,
    workers: Workers | None,
    context: Context,
) -> dict[str, MergingError]:
    """Compute missing points and store those that no other sweep has stored; the errors of those that fail, by name.

    ``total`` is the number of points of the sweep. Finished points remain stored after an exception.

    Raises:
        StoreError: the disk cannot be written to. Cancelled, Paused: the user did. WorkersGone: there was no worker for
            a minute.
    """
    stored_count = total - len(missing)

    def compute(planned: NamedPoint, number: int, part_context: Context) -> tuple[Point, Plain]:
        return computation.compute_point(
            planned, part_context.with_phase(f"{computation.unit.capitalize()} {number} of {total}")
        )

    tasks = [
        WorkerTask(
            planned.name, partial(computation.make_request, planned), partial(compute, planned, stored_count + number)
        )
        for number, planned in enumerate(missing, 1)
    ]
    with ThreadPoolExecutor(WRITER_THREADS) as pool:
        pending_writes = deque[Future[None]]()

        def store_answer(task: WorkerTask, answer: tuple[Point, Plain]) -> None:
            pending_writes.append(pool.submit(points.write_point, store, *answer))
            # Only without workers wait for the disk here; ``result`` raises the error of a write that failed.
            while pending_writes and (workers is None or pending_writes[0].done()):
                pending_writes.popleft().result()
            for warning in answer[1].get("warnings", ()):
                context.warn(warning)

        def read_answer(_: WorkerTask, answer: Plain) -> tuple[Point, Plain]:
            return Point.from_plain(answer), dict(answer["about"])

        task_map = TaskMap(POINT, context, read_answer, store_answer, total=total, noun=computation.unit)
        task_map.is_stored = lambda task: points.find_point(store, task.name) is not None
        try:
            failures = task_map.run(tasks, workers)
        except Paused:  # its message states how many points are stored
            _wait_for_writes(pending_writes)
            raise
        _wait_for_writes(pending_writes)
    return failures


def _wait_for_writes(pending_writes: Iterable[Future[None]]) -> None:
    """Wait until points are stored. Raises StoreError if one cannot be stored."""
    for write in pending_writes:
        write.result()
