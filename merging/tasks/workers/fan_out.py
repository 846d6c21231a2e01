"""Tasks on workers: at most a window of them at a time; tasks whose worker is lost are computed again.

This module uses only ``concurrent.futures``, and works with any backend that has an executor of it. The window bounds
memory, lets a cancellation take effect at once, and lets several programs share the same workers. A task that ends with
an error is not repeated.
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

WINDOW_FACTOR = 2  # submitted tasks for each task that can run at the same time
MAX_ANSWER_BYTES = 256 << 20  # bytes that the answers of all submitted tasks may have
POLL_SECONDS = 0.2  # between two checks for a cancellation and for the number of workers
MAX_SECONDS_WITHOUT_WORKERS = 60.0  # after which the remaining tasks are left for later
MAX_LOSSES = 3  # losses of a worker after which the worker's task fails


@dataclass(frozen=True, slots=True)
class WorkerTask:
    """A task that a worker can compute.

    ``make_request`` returns the task's request, which includes its name; it is called when the task is submitted.
    ``compute`` returns the answer without workers. ``work`` counts as progress. ``nbytes`` is the size of the answer.
    The answers of all submitted tasks have at most ``MAX_ANSWER_BYTES`` together, unless only one task is submitted.
    """

    name: str
    make_request: Callable[[], Plain]
    compute: Callable[[Context], Any] | None = None
    work: int = 1
    nbytes: int = 0
    detail: str = ""  # the detail of its progress


@dataclass
class _SubmittedTask:
    """A submitted task, and the number of times that its worker was lost."""

    task: WorkerTask
    request: bytes
    losses: int = 0


@dataclass
class FanOut:
    """Tasks of one kind that workers compute, a window of them at a time.

    ``on_answer`` is called with each answer, and ``on_error`` with each error; an exception that one of them raises
    ends the work.
    ``context`` receives the progress, such as "Point 37 of 200, on 8 workers", and warnings about lost workers.
    ``total`` counts all tasks, including those answered before; ``answer_count`` counts the answers so far.
    """

    kind: str
    workers: Workers
    on_answer: Callable[[WorkerTask, Plain], None]
    on_error: Callable[[WorkerTask, MergingError], None]
    context: Context = QUIET
    total: int = 0
    answer_count: int = 0

    def __post_init__(self) -> None:
        self.noun, self._workers_text, self._meter = find_kind(self.kind).noun, "", Meter(0)
        self._submitted: dict[Future[bytes], _SubmittedTask] = {}
        self._postponed: deque[_SubmittedTask] = deque()  # tasks to submit before new ones
        self._memory = MemoryWatch()  # of this machine, where workers often run

    def run(self, tasks: Iterable[WorkerTask], work: int | None = None) -> None:
        """Let workers compute all tasks. An iterator is read as tasks are submitted; ``work`` is the work of all.

        Raises:
            Cancelled: a cancellation was requested; waiting tasks are dropped.
            WorkersGone: there was no worker for a minute.
        """
        if work is None:
            tasks = list(tasks)
            work = sum(task.work for task in tasks)
        source, self._meter = iter(tasks), self.context.meter(work)
        try:
            while self._fill_window(source):
                self.context.check()
                self._poll()
                lost_tasks = self._collect_answers()
                self.context.check()  # a cancellation may also end the workers, which is not a loss
                if lost_tasks:
                    self._postpone_lost(lost_tasks)
        finally:
            for future in self._submitted:
                future.cancel()

    def _describe_progress(self) -> str:
        """The number of answers and of workers, as text."""
        return f"{self.noun.capitalize()} {self.answer_count} of {self.total}, on {self.workers.describe_count()}"

    def _poll(self) -> None:
        """Report a change in the number of workers, and sample the free memory."""
        self._memory.sample()
        if (text := self.workers.describe_count()) != self._workers_text:
            self._workers_text = text
            self._meter.report_part(0, self._describe_progress())

    def _fill_window(self, source: Iterator[WorkerTask]) -> bool:
        """Fill the window; return whether any task is submitted. If none is, all tasks are done."""
        if not self._submitted and self.workers.count == 0:  # without workers the loop would submit nothing
            self._await_workers()
        while (
            len(self._submitted) < WINDOW_FACTOR * self.workers.count
            and (next_task := self._find_next(source)) is not None
        ):
            nbytes = sum(submitted.task.nbytes for submitted in self._submitted.values()) + next_task.task.nbytes
            if self._submitted and nbytes > MAX_ANSWER_BYTES:
                self._postponed.appendleft(next_task)
                break
            try:
                future = self.workers.executor.submit(answer_request, self.kind, next_task.request)
            except self.workers.loss_errors:  # the executor broke after the last answer, before this task began
                self._postponed.appendleft(next_task)
                self._renew_executor()
            else:
                self._submitted[future] = next_task
        return bool(self._submitted)

    def _find_next(self, source: Iterator[WorkerTask]) -> _SubmittedTask | None:
        """The next task to submit; None if there is none, or if a suspect task must run alone."""
        if any(map(self._is_suspect, self._submitted.values())):
            return None
        if self._postponed:
            return None if self._submitted and self._is_suspect(self._postponed[0]) else self._postponed.popleft()
        for task in source:
            try:
                return _SubmittedTask(task, encode_request(task.make_request()))
            except MergingError as error:  # its request cannot be made
                self._fail(task, error)
        return None

    def _is_suspect(self, submitted: _SubmittedTask) -> bool:
        """Whether a task must run alone, so that this task alone can be the cause of the next loss.

        A task runs alone before its last attempt, or after one loss if a loss ends all submitted tasks.
        """
        return submitted.losses >= (1 if self.workers.make_executor is not None else MAX_LOSSES - 1)

    def _collect_answers(self) -> list[_SubmittedTask]:
        """Wait briefly and pass on the answers of finished tasks; return the tasks whose worker is lost."""
        finished, _ = wait(self._submitted, POLL_SECONDS, FIRST_COMPLETED)
        if not finished and not self.workers.has_workers():
            self._await_workers()
        # A cancellation that this program did not request is a loss, too.
        loss_errors: tuple[type[BaseException], ...] = (*self.workers.loss_errors, CancelledError)
        lost_tasks = []
        for future in finished:
            submitted = self._submitted.pop(future)
            try:
                answer = decode_answer(future.result())
            except loss_errors:
                lost_tasks.append(submitted)
            except MergingError as error:
                self._fail(submitted.task, error)
            except Exception as error:  # an error of the backend
                sentence = f"The workers failed with {type(error).__name__}: {str(error)[:200]}"
                self._fail(submitted.task, WorkerError(sentence))
            else:
                self.on_answer(submitted.task, answer)
                self._count_answer(submitted.task)
        return lost_tasks

    def _count_answer(self, task: WorkerTask) -> None:
        self.answer_count += 1
        self._meter.advance(task.work, self._describe_progress(), task.detail)

    def _fail(self, task: WorkerTask, error: MergingError) -> None:
        self.on_error(task, error)
        self._count_answer(task)

    def _postpone_lost(self, lost_tasks: list[_SubmittedTask]) -> None:
        """Postpone lost tasks, or fail those that lost their worker too often; renew a broken executor."""
        if self.workers.make_executor is not None:
            lost_tasks = [*lost_tasks, *self._submitted.values()]  # a broken executor loses all submitted tasks
            self._submitted.clear()
            self._renew_executor()
        subject = plural(len(lost_tasks), f"{self.noun} is", f"{self.noun}s are")
        self.context.warn(f"A worker was lost; {subject} computed again.")
        if not self.workers.has_workers():  # all workers are gone, so no task is to blame
            self._await_workers()
            self._postponed.extend(lost_tasks)
            return
        for submitted in lost_tasks:
            submitted.losses += 1
            if submitted.losses < MAX_LOSSES:
                self._postponed.append(submitted)
            else:
                self._fail(submitted.task, WorkerError(_describe_losses(submitted.losses, self._memory.ran_out())))

    def _renew_executor(self) -> None:
        if self.workers.make_executor is None:
            self._await_workers()
            time.sleep(POLL_SECONDS)
            return
        self.workers.close(self.workers.executor)
        self.workers.executor = self.workers.make_executor()

    def _await_workers(self) -> None:
        """Wait until there are workers again. Raises WorkersGone after ``MAX_SECONDS_WITHOUT_WORKERS`` seconds."""
        began = time.monotonic()
        while not self.workers.has_workers():
            self.context.check()
            self._poll()
            if time.monotonic() - began > MAX_SECONDS_WITHOUT_WORKERS:
                raise WorkersGone(f"{self.workers.title[:1].upper()}{self.workers.title[1:]} are gone.")
            time.sleep(POLL_SECONDS)


def _describe_losses(losses: int, memory_ran_out: bool) -> str:
    """The end of a sentence on a task that ended its worker ``losses`` times."""
    workers = {1: "one worker", 2: "two workers", 3: "three workers"}.get(losses, f"{losses} workers")
    if memory_ran_out:
        return f"it ended {workers}, probably because memory ran out. Start fewer workers on a machine."
    return f"it ended {workers}, and nothing on this machine shows that memory ran out. See the output of the workers."
