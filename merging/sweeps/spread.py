"""The missing points of a sweep, one after another here, or on workers.

Workers compute; this process stores each point as soon as it is there, so that a lost worker leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from merging.errors import Cancelled, MergingError, StoreError, WorkerError, WorkersGone
from merging.runs.estimate import EVALUATING, MERGING
from merging.runs.store import Store
from merging.sweeps import points
from merging.sweeps.points import Point
from merging.sweeps.sweep import NamedPoint
from merging.sweeps.wire import point_of
from merging.tasks.context import Context
from merging.workers.fan_out import Workers, fan_out
from merging.workers.sentences import Arrivals
from merging.workers.units import POINT, Plain

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
            stages = {stage: reporting_as(words, parts[f"{planned.name} {stage}"]) for stage in STAGES}
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
        before, requests = self.total - len(self.points), ((each.name, request(each)) for each in self._each())
        meter = self.context.meter(len(self.points))
        with ThreadPoolExecutor(WRITERS) as writers:
            arriving = _Coming(self, writers, Arrivals("Point", self.total, workers, meter, before))
            try:
                fan_out(
                    workers, POINT, requests, arriving.done, arriving.failed, self.context, told=arriving.told,
                    seen=arriving.arrivals.tell,
                )  # fmt: skip
            except WorkersGone as gone:
                kept = f"{before + len(arriving.stored)} of {self.total} points are kept."
                raise WorkersGone(f"{gone} {kept} Resume when they are back.") from None
            for future in arriving.writing:
                future.result()
        return arriving.failures


@dataclass
class _Coming:
    """Points that come from workers, and those that are being stored."""

    missing: MissingPoints
    writers: ThreadPoolExecutor
    arrivals: Arrivals
    writing: list[Future[None]] = field(default_factory=list)
    stored: set[str] = field(default_factory=set)
    failures: dict[str, MergingError] = field(default_factory=dict)

    def done(self, name: str, answer: Plain) -> None:
        """Store a point; raises StoreError if an earlier one could not be stored."""
        point, about = point_of(answer)
        if point.name != name:
            self.failed(name, WorkerError(f"a worker answered with point {point.name} instead of {name}."))
            return
        for finished in [future for future in self.writing if future.done()]:
            self.writing.remove(finished)
            finished.result()
        self.writing.append(self.writers.submit(points.write, self.missing.store, point, about))
        self.stored.add(name)
        for warning in about.get("warnings", ()):
            self.missing.context.warn(warning)
        self.arrivals.count()

    def failed(self, name: str, error: MergingError) -> None:
        """Keep why a point could not be computed."""
        self.failures[name] = error
        self.arrivals.count()

    def told(self, names: Collection[str]) -> None:
        """Say that a worker was lost."""
        self.missing.context.warn(self.arrivals.lost(names))


def reporting_as(words: str, context: Context) -> Context:
    """The context of one stage of a point; it reports ``words``, which say which point it is, and then its phase."""
    report = context.progress
    if report is None:
        return context
    return replace(context, progress=lambda inner: report(replace(inner, phase=words, detail=inner.phase)))
