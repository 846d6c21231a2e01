"""Pieces of work that do not need each other, several at once, with their results in the order of the pieces."""

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

WAKE = 0.2  # seconds after which somebody who waits looks whether to stop
# Called with the share of a unit that is done, in [0, 1] (None: no news), and what it is doing; may raise Cancelled.
Report = Callable[[float | None, str], None]


@dataclass(frozen=True)
class Unit(Generic[T]):
    """A piece of work: what one layer takes, whoever does it.

    ``work`` is its size in scalars, ``nbytes`` the memory that it takes while it runs, and ``kept`` that of its result.
    A unit starts when all units of other groups before it are done and their results are taken.
    """

    name: str
    work: int
    nbytes: int
    kept: int
    run: Callable[[Report], T]
    group: Hashable = None


def peak_bytes(sizes: Iterable[int], workers: int, budget: int) -> int:
    """The memory that units of these sizes take at most, of which ``workers`` run within a budget, or one alone."""
    largest = sorted(sizes, reverse=True)[:workers]
    return max(max(largest, default=0), min(sum(largest), budget))


@dataclass
class _RunningUnit(Generic[T]):
    """A unit that was started, and the share of it that is done."""

    unit: Unit[T]
    future: Future[T] = field(default_factory=Future)
    share: float = 0.0

    @property
    def nbytes(self) -> int:
        return self.unit.kept if self.future.done() else self.unit.nbytes

    @property
    def done(self) -> int:
        """Scalars that are worked on."""
        return self.unit.work if self.future.done() else round(self.share * self.unit.work)


def run_units(
    units: Iterable[Unit[T]],
    workers: int,
    budget: int,
    listen: Callable[[int, str, str], None],
    prepare: Callable[[], Any],
) -> Generator[T, None, None]:
    """The results of units, in their order; up to ``workers`` threads work at once.

    A unit waits while it and those before it take more memory than the ``budget``, unless it is alone. ``listen`` is
    called in the caller's thread with the scalars worked on since the last result, what is done and for which unit; it
    may raise Cancelled. Every thread calls ``prepare`` first. An error of a unit is raised in its turn.
    """
    started, stop = deque[_RunningUnit[T]](), Event()
    news: SimpleQueue[tuple[_RunningUnit[T] | None, float | None, str]] = SimpleQueue()
    source = iter(units)
    following = next(source, None)

    def start(unit: Unit[T]) -> None:
        own = _RunningUnit(unit)

        def report(share: float | None, detail: str = "") -> None:
            if stop.is_set():
                raise Cancelled("Cancelled; nothing was kept.")
            news.put((own, share, detail))

        own.future = pool.submit(unit.run, report)
        started.append(own)
        own.future.add_done_callback(lambda _: news.put((None, None, "")))

    def fits(unit: Unit[T]) -> bool:
        running = sum(not each.future.done() for each in started)
        together = sum(each.nbytes for each in started) + unit.nbytes
        return not started or (running < workers and together <= budget and unit.group == started[-1].unit.group)

    with ThreadPoolExecutor(workers, initializer=prepare) as pool:
        try:
            while following is not None or started:
                while following is not None and fits(following):
                    start(following)
                    following = next(source, None)
                if started[0].future.done():
                    yield started.popleft().future.result()
                else:
                    _relay_progress(news, started, listen)
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)


def _relay_progress(
    news: SimpleQueue[Any], started: Iterable[_RunningUnit[Any]], listen: Callable[[int, str, str], None]
) -> None:
    """Wait for news, or for a while, and pass them on."""
    try:
        of, share, detail = news.get(timeout=WAKE)
    except Empty:
        of, share, detail = None, None, ""
    if of is not None and share is not None:
        of.share = share
    listen(sum(each.done for each in started), detail, of.unit.name if of else "")


@contextmanager
def map_in_threads(
    tasks: Iterable[Callable[[], T]], workers: int, started: int, prepare: Callable[[], Any]
) -> Iterator[Iterator[T]]:
    """The results of many small tasks, in their order, made by ``workers`` threads that call ``prepare`` first.

    At most so many are ``started`` and not yet used: the next task is taken and starts when the loop over the results
    continues. An error of a task is raised in its turn.
    """
    with ThreadPoolExecutor(workers, initializer=prepare) as pool:

        def results() -> Iterator[T]:
            waiting = deque[Future[T]]()
            for task in tasks:
                waiting.append(pool.submit(task))
                if len(waiting) == started:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()

        try:
            yield results()
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def prefetch(items: Iterator[T]) -> Iterator[Iterator[T]]:
    """The same items, each made by another thread while the one before it is in use."""
    with ThreadPoolExecutor(1) as pool:

        def prefetched() -> Iterator[T]:
            following = pool.submit(next, items, None)
            while (item := following.result()) is not None:
                following = pool.submit(next, items, None)
                yield item

        yield prefetched()
