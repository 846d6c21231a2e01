"""Independent pieces of work, computed several at once, with their results in the order of the pieces."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Event
from typing import Any, Generic, TypeVar

from merging.base.errors import Cancelled

T = TypeVar("T")

POLL_SECONDS = 0.2  # seconds between two checks whether to stop while waiting
# Called with the share of a unit that is done, in [0, 1] (None: no change), and a detail; may raise Cancelled.
Report = Callable[[float | None, str], None]


@dataclass(frozen=True)
class Unit(Generic[T]):
    """A piece of work, such as one layer.

    ``work`` is its size in scalars, ``nbytes`` the memory that it takes while it runs, and ``result_bytes`` the memory
    that its result takes. A unit starts after all earlier units of other groups are done and their results are
    consumed.
    """

    name: str
    work: int
    nbytes: int
    result_bytes: int
    run: Callable[[Report], T]
    group: Hashable = None


def peak_bytes(sizes: Iterable[int], workers: int, budget: int) -> int:
    """The most memory that units of these sizes take if ``workers`` run within ``budget`` bytes, or one runs alone."""
    largest = sorted(sizes, reverse=True)[:workers]
    return max(max(largest, default=0), min(sum(largest), budget))


@dataclass
class _RunningUnit(Generic[T]):
    """A started unit, and the share of it that is done."""

    unit: Unit[T]
    future: Future[T] = field(default_factory=Future)
    share: float = 0.0

    @property
    def nbytes(self) -> int:
        return self.unit.result_bytes if self.future.done() else self.unit.nbytes

    @property
    def done(self) -> int:
        """The number of scalars that are done."""
        return self.unit.work if self.future.done() else round(self.share * self.unit.work)


def run_units(
    units: Iterable[Unit[T]],
    workers: int,
    budget: int,
    on_progress: Callable[[int, str, str], None],
    prepare: Callable[[], Any],
) -> Generator[T, None, None]:
    """The results of units, in their order; up to ``workers`` threads work at once.

    A unit waits while it and the started units take more than ``budget`` bytes, unless no unit is started.
    ``on_progress`` is called in the caller's thread with the scalars done since the last result, the detail and the
    unit's name; it may raise Cancelled. Every thread calls ``prepare`` first. If a unit fails, its error is raised in
    place of its result.
    """
    started, stop = deque[_RunningUnit[T]](), Event()
    reports: SimpleQueue[tuple[_RunningUnit[T] | None, float | None, str]] = SimpleQueue()
    source = iter(units)
    next_unit = next(source, None)

    def start(unit: Unit[T]) -> None:
        running_unit = _RunningUnit(unit)

        def report(share: float | None, detail: str = "") -> None:
            if stop.is_set():
                raise Cancelled("Cancelled; nothing was kept.")
            reports.put((running_unit, share, detail))

        running_unit.future = pool.submit(unit.run, report)
        started.append(running_unit)
        running_unit.future.add_done_callback(lambda _: reports.put((None, None, "")))

    def can_start(unit: Unit[T]) -> bool:
        running = sum(not running_one.future.done() for running_one in started)
        together = sum(running_one.nbytes for running_one in started) + unit.nbytes
        return not started or (running < workers and together <= budget and unit.group == started[-1].unit.group)

    with ThreadPoolExecutor(workers, initializer=prepare) as pool:
        try:
            while next_unit is not None or started:
                while next_unit is not None and can_start(next_unit):
                    start(next_unit)
                    next_unit = next(source, None)
                if started[0].future.done():
                    yield started.popleft().future.result()
                else:
                    _relay_progress(reports, started, on_progress)
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)


def _relay_progress(
    reports: SimpleQueue[Any], started: Iterable[_RunningUnit[Any]], on_progress: Callable[[int, str, str], None]
) -> None:
    """Wait for a report of a unit, for ``POLL_SECONDS`` seconds at most, and pass the progress to ``on_progress``."""
    try:
        running, share, detail = reports.get(timeout=POLL_SECONDS)
    except Empty:
        running, share, detail = None, None, ""
    if running is not None and share is not None:
        running.share = share
    on_progress(sum(started_unit.done for started_unit in started), detail, running.unit.name if running else "")


@contextmanager
def map_in_threads(
    tasks: Iterable[Callable[[], T]], workers: int, max_unconsumed: int, prepare: Callable[[], Any]
) -> Iterator[Iterator[T]]:
    """The results of many small tasks, in their order, computed by ``workers`` threads that call ``prepare`` first.

    At most ``max_unconsumed`` tasks are started before their results are consumed: the next task starts when the loop
    over the results continues. If a task fails, its error is raised in place of its result.
    """
    with ThreadPoolExecutor(workers, initializer=prepare) as pool:

        def results() -> Iterator[T]:
            futures = deque[Future[T]]()
            for task in tasks:
                futures.append(pool.submit(task))
                if len(futures) == max_unconsumed:
                    yield futures.popleft().result()
            while futures:
                yield futures.popleft().result()

        try:
            yield results()
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def prefetch(items: Iterator[T]) -> Iterator[Iterator[T]]:
    """The same items, each produced by another thread while the previous one is in use."""
    with ThreadPoolExecutor(1) as pool:

        def prefetched() -> Iterator[T]:
            future = pool.submit(next, items, None)
            while (item := future.result()) is not None:
                future = pool.submit(next, items, None)
                yield item

        yield prefetched()
