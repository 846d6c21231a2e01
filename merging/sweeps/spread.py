"""The missing points of a sweep, one after another here, or on workers.

Workers compute; this process stores each point as soon as it is there, so that a lost worker leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from merging.errors import Cancelled, MergingError, StoreError, WorkerError, WorkersGone
from merging.runs.estimate import EVALUATING, MERGING
from merging.runs.store import Store
from merging.sweeps import points
from merging.sweeps.points import Point
from merging.sweeps.sweep import NamedPoint
from merging.sweeps.wire import point_of
from merging.tasks.context import Context
from merging.tasks.kinds import POINT, Plain
from merging.workers.fan_out import FanOut, WorkerTask
from merging.workers.workers import Workers

STAGES = (MERGING, EVALUATING)
WRITERS = 8  # threads that store what workers compute: most of it is waiting for the disk
Compute = Callable[[NamedPoint, Mapping[str, Context]], tuple[Point, Plain]]


@dataclass
class MissingPoints:
    """Points to compute. ``halted`` says that it paused before the last one, ``taken`` how many were begun or found."""

    points: Sequence[NamedPoint]
    total: int  # points of the sweep, or of a share of it
    store: Store
    context: Context
    halted: bool = False
    taken: int = 0

    def _each(self) -> Iterator[NamedPoint]:
        """The points, unless another sweep has computed one meanwhile, until it is asked to pause."""
        for planned in self.points:
            self.context.check()
            if self.context.pauses():
                self.halted = True
                return
            self.taken += 1
            if not points.find(self.store, planned.name):
                yield planned

    def here(self, compute: Compute) -> dict[str, MergingError]:
        """Compute one point after another; the errors of those that fail, by name.

        Raises:
            StoreError: the disk cannot be written to. Cancelled: as asked; finished points are kept.
        """
        names = [f"{planned.name} {stage}" for planned in self.points for stage in STAGES]
        parts, failures = self.context.parts(dict.fromkeys(names, 1.0)), dict[str, MergingError]()
        before = self.total - len(self.points)
        for planned in self._each():
            words = f"Point {before + self.taken} of {self.total}"
            stages = {stage: parts[f"{planned.name} {stage}"].saying(words) for stage in STAGES}
            try:
                point, about = compute(planned, stages)
            except (Cancelled, StoreError):
                raise
            except MergingError as error:
                failures[planned.name] = error
            else:
                points.write(self.store, point, about)
                for warning in about.get("warnings", ()):
                    self.context.warn(warning)
        return failures

    def on(self, workers: Workers, request: Callable[[NamedPoint], Plain]) -> dict[str, MergingError]:
        """Let workers compute the points; the errors of those that fail, by name.

        Raises:
            StoreError, Cancelled: as ``here``. WorkersGone: there was no worker for a minute; finished points are kept.
        """
        before, failures = self.total - len(self.points), dict[str, MergingError]()
        tasks = (WorkerTask(each.name, partial(request, each)) for each in self._each())
        with ThreadPoolExecutor(WRITERS) as writers:
            written = _WrittenPoints(self, writers, failures)
            fan = FanOut(POINT, workers, written.take, written.fail, self.context, self.total, before)
            try:
                fan.run(tasks, len(self.points))
            except WorkersGone as gone:
                kept = f"{before + len(written.names)} of {self.total} points are kept."
                raise WorkersGone(f"{gone} {kept} Resume when they are back.") from None
            for future in written.writing:
                future.result()
        return failures


@dataclass
class _WrittenPoints:
    """Points that come from workers, and those that are being stored."""

    missing: MissingPoints
    writers: ThreadPoolExecutor
    failures: dict[str, MergingError]
    writing: list[Future[None]] = field(default_factory=list)
    names: set[str] = field(default_factory=set)

    def take(self, task: WorkerTask, answer: Plain) -> None:
        """Store a point; raises StoreError if an earlier one could not be stored."""
        point, about = point_of(answer)
        if point.name != task.name:
            self.fail(task, WorkerError(f"a worker answered with point {point.name} instead of {task.name}."))
            return
        for finished in [future for future in self.writing if future.done()]:
            self.writing.remove(finished)
            finished.result()
        self.writing.append(self.writers.submit(points.write, self.missing.store, point, about))
        self.names.add(task.name)
        for warning in about.get("warnings", ()):
            self.missing.context.warn(warning)

    def fail(self, task: WorkerTask, error: MergingError) -> None:
        """Note why a point could not be computed."""
        self.failures[task.name] = error
