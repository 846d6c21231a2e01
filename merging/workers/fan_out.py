"""Units of work for many workers: at most a window of them at a time; what is lost is tried again.

This knows no engine, only ``concurrent.futures``. The window bounds memory, makes cancel prompt, and lets several
programs share the same workers. An error of a unit is an answer, and is never tried again.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Executor, Future, wait
from dataclasses import dataclass, field
from typing import Any

from merging.errors import MergingError, WorkerError, WorkersGone
from merging.free_memory import MemoryWatch
from merging.tasks.context import QUIET, Context
from merging.text import size_text
from merging.workers.units import Plain, answered, call, written

WINDOW = 2  # units in flight for each that can run
MOST_BYTES = 256 << 20  # of answers in flight
WAKE = 0.2  # seconds after which it is looked whether to stop, and whether the workers are still there
GONE = 60.0  # seconds without any worker after which the rest is left for later
Request = tuple[str, Mapping[str, Any]]  # the name of a unit of work, and what is asked


def _shut(executor: Executor) -> None:
    executor.shutdown(wait=False)  # what waits was cancelled; some executors know no ``cancel_futures``


@dataclass
class Workers:
    """Who computes. ``executor`` changes when it breaks and is renewed.

    ``each`` asks every worker the same and gives the answers by worker, where the engine can do that; ``only`` keeps
    the workers that gave these answers to ``about``, and of those that come later what is like them; with True it keeps
    those on the same machines alone.
    """

    executor: Executor
    count: int  # units that run at the same time
    lost: tuple[type[BaseException], ...] = (BrokenExecutor,)  # what a future raises when its worker is gone
    renew: Callable[[], Executor] | None = None  # where such a loss breaks the executor
    called: str = "the workers"
    present: Callable[[], bool] = lambda: True  # whether there is any worker
    close: Callable[[Executor], None] = _shut
    each: Callable[[str, bytes], Mapping[str, bytes]] | None = None
    only: Callable[[Collection[Mapping[str, Any]], bool], Workers] | None = None
    most: int = 0  # how many there were
    kind: str = ""  # what ``about`` calls them, once they were checked
    memory: int = 0  # bytes that each may take, of the one that may take least; 0: unknown

    def check_memory(self, needed: int, what: str) -> None:
        """Raise WorkerError if ``what``, "a point" say, needs more bytes than each worker may take."""
        if 0 < self.memory < needed:
            raise WorkerError(
                f"{what.capitalize()} needs about {size_text(needed)} of memory; the workers have "
                f"{size_text(self.memory)} each. Start fewer on a machine, or with more --memory."
            )

    def words(self) -> str:
        """How many there are: "7 workers, 1 lost"."""
        self.most = max(self.most, self.count)
        lost = f", {self.most - self.count} lost" if self.count < self.most else ""
        return f"{self.count} worker{'s' * (self.count != 1)}{lost}"


@dataclass
class _Unit:
    """A unit of work, and how often its worker was lost."""

    name: str
    request: bytes
    size: int = 0  # bytes of the answer
    losses: int = 0


def fan_out(
    workers: Workers,
    unit: str,
    requests: Iterable[Request],
    done: Callable[[str, Plain], None],
    failed: Callable[[str, MergingError], None],
    context: Context = QUIET,
    tries: int = 3,
    told: Callable[[Collection[str]], None] = lambda names: None,
    size: Callable[[str], int] = lambda name: 0,
    seen: Callable[[], None] = lambda: None,
) -> None:
    """Let workers do a unit for every request; requests are taken as they are submitted.

    ``size`` says how many bytes a unit, by its name, will answer with: ``MOST_BYTES`` may come at once, or one unit.

    ``done`` gets the name and the answer, ``failed`` the name and the error, ``told`` the names of units whose worker
    was lost, ``seen`` is called at first and whenever there are more or fewer workers; all are called in this thread,
    and what they raise ends the work.

    Raises:
        Cancelled: ``cancel`` asked for it; what waits is dropped. WorkersGone: there was no worker for a minute.
    """
    work = _Fan(workers, unit, tries, told, context, size, seen)
    source = iter(requests)
    try:
        while work.submit(source):
            work.check()
            work.look()
            lost = work.collect(done, failed)
            work.check()  # a stop that reaches the workers, too, is no loss
            if lost:
                work.take_back(lost, failed)
    finally:
        for future in work.flying:
            future.cancel()


@dataclass
class _Fan:
    """What is under way."""

    workers: Workers
    unit: str
    tries: int
    told: Callable[[Collection[str]], None]
    context: Context
    size: Callable[[str], int]
    seen: Callable[[], None]
    words: str = ""  # of the workers, as they were seen
    flying: dict[Future[bytes], _Unit] = field(default_factory=dict)
    again: deque[_Unit] = field(default_factory=deque)
    memory: MemoryWatch = field(default_factory=MemoryWatch)  # of this machine, where workers often are

    def check(self) -> None:
        """Raise Cancelled if asked to stop."""
        self.context.check()

    def look(self) -> None:
        """Say if there are other workers than before; note how much memory is free."""
        self.memory.look()
        if (words := self.workers.words()) != self.words:
            self.words = words
            self.seen()

    def submit(self, source: Any) -> bool:
        """Fill the window; whether anything is in flight then, as long as anything is left."""
        if not self.flying and self.workers.count == 0:  # else nothing would be submitted, as if all were done
            self._await_workers()
        while len(self.flying) < WINDOW * self.workers.count and (work := self._next(source)) is not None:
            if self.flying and sum(each.size for each in self.flying.values()) + work.size > MOST_BYTES:
                self.again.appendleft(work)
                break
            try:
                future = self.workers.executor.submit(call, self.unit, work.request)
            except self.workers.lost:  # it broke after the last answer; this unit has not begun
                self.again.appendleft(work)
                self._renew()
            else:
                self.flying[future] = work
        return bool(self.flying)

    def _next(self, source: Any) -> _Unit | None:
        """What to submit next; what may take its workers down runs alone."""
        if any(map(self._suspect, self.flying.values())):
            return None
        if self.again:
            return None if self.flying and self._suspect(self.again[0]) else self.again.popleft()
        if (request := next(source, None)) is None:
            return None
        return _Unit(request[0], written(request[1]), self.size(request[0]))

    def _suspect(self, work: _Unit) -> bool:
        """Whether the next loss must be its own fault: after a break, which ends all that is in flight, or at last."""
        return work.losses >= (1 if self.workers.renew is not None else self.tries - 1)

    def collect(self, done: Callable[[str, Plain], None], failed: Callable[[str, MergingError], None]) -> list[_Unit]:
        """Hand on what is finished, after a while at most; the work whose worker is gone."""
        finished, _ = wait(self.flying, WAKE, FIRST_COMPLETED)
        if not finished and not self.workers.present():
            self._await_workers()
        # A cancel that we did not ask for is a loss, too.
        losses: tuple[type[BaseException], ...] = (*self.workers.lost, CancelledError)
        lost = []
        for future in finished:
            work = self.flying.pop(future)
            try:
                answer = answered(future.result())
            except losses:
                lost.append(work)
            except MergingError as error:
                failed(work.name, error)
            except Exception as error:  # of the engine
                failed(work.name, WorkerError(f"The workers failed with {type(error).__name__}: {str(error)[:200]}"))
            else:
                done(work.name, answer)
        return lost

    def take_back(self, lost: list[_Unit], failed: Callable[[str, MergingError], None]) -> None:
        """Queue lost work again, or name what took its workers down too often; renew what broke."""
        if self.workers.renew is not None:
            lost = [*lost, *self.flying.values()]  # the break ends them all
            self.flying.clear()
            self._renew()
        self.told([work.name for work in lost])
        if not self.workers.present():  # not the fault of what they did
            self._await_workers()
            self.again.extend(lost)
            return
        for work in lost:
            work.losses += 1
            if work.losses < self.tries:
                self.again.append(work)
            else:
                failed(work.name, WorkerError(_taken_down(work.losses, self.memory.ran_out())))

    def _renew(self) -> None:
        if self.workers.renew is None:
            self._await_workers()
            time.sleep(WAKE)
            return
        self.workers.close(self.workers.executor)
        self.workers.executor = self.workers.renew()

    def _await_workers(self) -> None:
        """Wait until there are workers again."""
        since = time.monotonic()
        while not self.workers.present():
            self.check()
            self.look()
            if time.monotonic() - since > GONE:
                raise WorkersGone(f"{self.workers.called[:1].upper()}{self.workers.called[1:]} are gone.")
            time.sleep(WAKE)


def _taken_down(times: int, ran_out: bool) -> str:
    many = {1: "one worker", 2: "two workers", 3: "three workers"}.get(times, f"{times} workers")
    if ran_out:
        return f"it took {many} down with it; the likely cause is memory. Start fewer workers on a machine."
    return f"it took {many} down with it; nothing here shows that memory ran out. Look at what the workers printed."
