"""Tasks on workers: at most a window of them at a time; what is lost is done again.

This knows no engine, only ``concurrent.futures``. The window bounds memory, makes cancel prompt, and lets several
programs share the same workers. An error of a task is an answer, and is never tried again.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from dataclasses import dataclass
from typing import Any

from merging.base.errors import MergingError, WorkerError, WorkersGone
from merging.base.free_memory import MemoryWatch
from merging.base.progress import Meter
from merging.base.text import plural
from merging.tasks.context import QUIET, Context
from merging.tasks.kinds import Plain, find_kind
from merging.tasks.worker import answer_request, decode_answer, encode_request
from merging.tasks.workers.workers import Workers

WINDOW = 2  # tasks in flight for each that can run
MOST_BYTES = 256 << 20  # of answers in flight
WAKE = 0.2  # seconds after which it is looked whether to stop, and whether the workers are still there
GONE = 60.0  # seconds without any worker after which the rest is left for later
TRIES = 3  # workers that a task may take down


@dataclass(frozen=True, slots=True)
class WorkerTask:
    """A task that a worker may do. ``ask`` gives what is said to it, with its name, when it is handed out.

    ``compute`` gives the answer without workers. ``work`` is counted as progress, and ``nbytes`` is the size of the
    answer: tasks with at most ``MOST_BYTES`` of answers are in flight at once, or one.
    """

    name: str
    ask: Callable[[], Plain]
    compute: Callable[[Context], Any] | None = None
    work: int = 1
    nbytes: int = 0
    detail: str = ""  # of progress


@dataclass
class _SubmittedTask:
    """A task that was handed out, and how often its worker was lost."""

    task: WorkerTask
    request: bytes
    losses: int = 0


@dataclass
class FanOut:
    """Tasks of one kind that workers compute, a window of them at a time.

    ``take`` gets each answer, and ``failed`` each error; what they raise ends the work. ``context`` hears how far it
    is, as "Point 37 of 200, on 8 workers", and of lost workers. ``total`` counts the tasks with those that are there
    already, which ``arrived`` counts.
    """

    kind: str
    workers: Workers
    take: Callable[[WorkerTask, Plain], None]
    failed: Callable[[WorkerTask, MergingError], None]
    context: Context = QUIET
    total: int = 0
    arrived: int = 0

    def __post_init__(self) -> None:
        self.noun, self._words_of_workers, self._meter = find_kind(self.kind).noun, "", Meter(0)
        self._flying: dict[Future[bytes], _SubmittedTask] = {}
        self._again: deque[_SubmittedTask] = deque()
        self._memory = MemoryWatch()  # of this machine, where workers often are

    def run(self, tasks: Iterable[WorkerTask], work: int | None = None) -> None:
        """Let workers do all tasks. Those of an iterator are taken as they are handed out; ``work`` is that of all.

        Raises:
            Cancelled: as asked; what waits is dropped. WorkersGone: there was no worker for a minute.
        """
        if work is None:
            tasks = list(tasks)
            work = sum(task.work for task in tasks)
        source, self._meter = iter(tasks), self.context.meter(work)
        try:
            while self._submit(source):
                self.context.check()
                self._poll()
                lost = self._collect()
                self.context.check()  # a stop that reaches the workers, too, is no loss
                if lost:
                    self._take_back(lost)
        finally:
            for future in self._flying:
                future.cancel()

    def _describe_progress(self) -> str:
        """How many answers there are, and how many workers."""
        return f"{self.noun.capitalize()} {self.arrived} of {self.total}, on {self.workers.describe_count()}"

    def _poll(self) -> None:
        """Say if there are other workers than before; note how much memory is free."""
        self._memory.sample()
        if (words := self.workers.describe_count()) != self._words_of_workers:
            self._words_of_workers = words
            self._meter.report_part(0, self._describe_progress())

    def _submit(self, source: Iterator[WorkerTask]) -> bool:
        """Fill the window; whether anything is in flight then, as long as anything is left."""
        if not self._flying and self.workers.count == 0:  # else nothing would be submitted, as if all were done
            self._await_workers()
        while len(self._flying) < WINDOW * self.workers.count and (flight := self._next(source)) is not None:
            nbytes = sum(each.task.nbytes for each in self._flying.values()) + flight.task.nbytes
            if self._flying and nbytes > MOST_BYTES:
                self._again.appendleft(flight)
                break
            try:
                future = self.workers.executor.submit(answer_request, self.kind, flight.request)
            except self.workers.lost:  # it broke after the last answer; this task has not begun
                self._again.appendleft(flight)
                self._renew()
            else:
                self._flying[future] = flight
        return bool(self._flying)

    def _next(self, source: Iterator[WorkerTask]) -> _SubmittedTask | None:
        """What to submit next; what may take its workers down runs alone."""
        if any(map(self._is_suspect, self._flying.values())):
            return None
        if self._again:
            return None if self._flying and self._is_suspect(self._again[0]) else self._again.popleft()
        for task in source:
            try:
                return _SubmittedTask(task, encode_request(task.ask()))
            except MergingError as error:  # it cannot be asked for
                self._fail(task, error)
        return None

    def _is_suspect(self, flight: _SubmittedTask) -> bool:
        """Whether the next loss must be its own fault: after a break, which ends all that is in flight, or at last."""
        return flight.losses >= (1 if self.workers.renew is not None else TRIES - 1)

    def _collect(self) -> list[_SubmittedTask]:
        """Hand on what is finished, after a while at most; the flights whose worker is gone."""
        finished, _ = wait(self._flying, WAKE, FIRST_COMPLETED)
        if not finished and not self.workers.present():
            self._await_workers()
        # A cancel that we did not ask for is a loss, too.
        losses: tuple[type[BaseException], ...] = (*self.workers.lost, CancelledError)
        lost = []
        for future in finished:
            flight = self._flying.pop(future)
            try:
                answer = decode_answer(future.result())
            except losses:
                lost.append(flight)
            except MergingError as error:
                self._fail(flight.task, error)
            except Exception as error:  # of the engine
                said = f"The workers failed with {type(error).__name__}: {str(error)[:200]}"
                self._fail(flight.task, WorkerError(said))
            else:
                self.take(flight.task, answer)
                self._count(flight.task)
        return lost

    def _count(self, task: WorkerTask) -> None:
        self.arrived += 1
        self._meter.advance(task.work, self._describe_progress(), task.detail)

    def _fail(self, task: WorkerTask, error: MergingError) -> None:
        self.failed(task, error)
        self._count(task)

    def _take_back(self, lost: list[_SubmittedTask]) -> None:
        """Queue lost tasks again, or name what took its workers down too often; renew what broke."""
        if self.workers.renew is not None:
            lost = [*lost, *self._flying.values()]  # the break ends them all
            self._flying.clear()
            self._renew()
        again = plural(len(lost), f"{self.noun} is", f"{self.noun}s are")
        self.context.warn(f"A worker was lost; {again} computed again.")
        if not self.workers.present():  # not the fault of what they did
            self._await_workers()
            self._again.extend(lost)
            return
        for flight in lost:
            flight.losses += 1
            if flight.losses < TRIES:
                self._again.append(flight)
            else:
                self._fail(flight.task, WorkerError(_describe_losses(flight.losses, self._memory.ran_out())))

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
            self.context.check()
            self._poll()
            if time.monotonic() - since > GONE:
                raise WorkersGone(f"{self.workers.called[:1].upper()}{self.workers.called[1:]} are gone.")
            time.sleep(WAKE)


def _describe_losses(times: int, ran_out: bool) -> str:
    many = {1: "one worker", 2: "two workers", 3: "three workers"}.get(times, f"{times} workers")
    if ran_out:
        return f"it took {many} down with it; the likely cause is memory. Start fewer workers on a machine."
    return f"it took {many} down with it; nothing here shows that memory ran out. Look at what the workers printed."
