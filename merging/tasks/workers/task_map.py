"""Tasks of one kind, one after another here or by workers: the one way to compute what consists of tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from merging.base.errors import Cancelled, MergingError, Paused, StoreError, WorkerError, WorkersGone
from merging.tasks.context import Context
from merging.tasks.kinds import Plain, find_kind
from merging.tasks.store_mark import Mark, describe_unseen_store, write_mark
from merging.tasks.workers.checking import question_workers
from merging.tasks.workers.fan_out import FanOut, WorkerTask
from merging.tasks.workers.workers import Workers

A = TypeVar("A")


def raise_error(task: WorkerTask, error: MergingError) -> None:
    """End the work with the error of a task."""
    raise error


@dataclass
class TaskMap(Generic[A]):
    """What becomes of tasks of a kind; the answers are the same whoever computes.

    ``read`` makes an answer of what a worker says of a task. ``take`` gets each answer as it comes, and ``fail`` each
    error; without it they are collected. What ``is_there`` meanwhile is not computed. ``total`` counts the tasks with
    those that were there before, 0: there was none. The workers of kinds that write into the store must see its
    ``folder``. ``say_lost`` says what is left when all workers are gone.
    """

    kind: str
    context: Context
    read: Callable[[WorkerTask, Plain], A]
    take: Callable[[WorkerTask, A], None]
    fail: Callable[[WorkerTask, MergingError], None] | None = None
    is_there: Callable[[WorkerTask], bool] = lambda task: False
    total: int = 0
    folder: Path | None = None
    say_lost: Callable[[], str] | None = None
    _failures: dict[str, MergingError] = field(default_factory=dict, init=False)
    _done: int = field(default=0, init=False)
    _paused: bool = field(default=False, init=False)

    def run(self, tasks: Sequence[WorkerTask], workers: Workers | None) -> dict[str, MergingError]:
        """Compute the tasks in their order here, or let workers do so; the errors that were collected, by name.

        Raises:
            MergingError: what ``take`` and ``fail`` raise. StoreError: the disk cannot be written to.
            Cancelled: as asked. Paused: as asked, of kinds that are stored; all that was begun is finished.
            WorkersGone: there was no worker for a minute.
        """
        kind, self.total = find_kind(self.kind), self.total or len(tasks)
        assert kind.in_store == (self.folder is not None)
        self._noun, self._stored, self._done = kind.noun, kind.stored, self.total - len(tasks)
        if not tasks or workers is None:
            self._compute_here(tasks)
        elif self.folder is None:
            self._compute_on(workers, tasks)
        else:
            self._compute_in_store(workers, tasks, self.folder)
        if self._paused:
            raise Paused(f"Paused. {self._stored_answers()}")
        return self._failures

    def _stored_answers(self) -> str:
        return f"{self._done} of {self.total} {self._noun}s are kept."

    def _missing_tasks(self, tasks: Sequence[WorkerTask]) -> Iterator[WorkerTask]:
        """The tasks that are not there meanwhile, until it is asked to pause."""
        for task in tasks:
            self.context.check()
            if self._stored and self.context.is_pause_requested():
                self._paused = True
                return
            if self.is_there(task):
                self._done += 1
            else:
                yield task

    def _fail(self, task: WorkerTask, error: MergingError) -> None:
        if self.fail is not None:
            self.fail(task, error)
        self._failures[task.name] = error

    def _accept(self, task: WorkerTask, answer: A) -> None:
        self.take(task, answer)
        self._done += 1

    def _compute_here(self, tasks: Sequence[WorkerTask]) -> None:
        """One task after another in this process; each has its part of the progress."""
        parts = self.context.split({task.name: task.work for task in tasks})
        for task in self._missing_tasks(tasks):
            assert task.compute is not None
            try:
                answer = task.compute(parts[task.name])
            except (Cancelled, StoreError):
                raise
            except MergingError as error:
                self._fail(task, error)
            else:
                self._accept(task, answer)

    def _compute_in_store(self, workers: Workers, tasks: Sequence[WorkerTask], folder: Path) -> None:
        """Let workers write into the store, or compute here if some does not see its folder."""
        with write_mark(folder) as mark:
            if all(each["sees_store"] for each in question_workers(workers, self.context.device, mark)):
                self._compute_on(workers, [replace(task, ask=partial(_add_mark, task, mark)) for task in tasks], mark)
                return
        self.context.warn(f"{describe_unseen_store(folder)}, or {self._noun}s are computed here.")
        self._compute_here(tasks)

    def _compute_on(self, workers: Workers, tasks: Sequence[WorkerTask], mark: Mark | None = None) -> None:
        """Let workers compute; a ``mark`` stays as long as they write into the store."""

        def take(task: WorkerTask, said: Plain) -> None:
            for sentence in said.get("warnings", ()):
                self.context.warn(str(sentence))
            if mark is not None:
                Path(mark["path"]).touch()  # what is a day old would be swept up
            try:
                if (name := said.get("name", task.name)) != task.name:
                    raise WorkerError(f"a worker answered with {self._noun} {name} instead of {task.name}.")
                answer = self.read(task, said)
            except MergingError as error:
                self._fail(task, error)
            else:
                self._accept(task, answer)

        fan = FanOut(self.kind, workers, take, self._fail, self.context, self.total, self._done)
        try:
            fan.run(self._missing_tasks(tasks), sum(task.work for task in tasks))
        except WorkersGone as gone:
            stored = f"{self._stored_answers()} Resume when they are back." if self._stored else ""
            raise WorkersGone(f"{gone} {self.say_lost() if self.say_lost else stored}".strip()) from None


def _add_mark(task: WorkerTask, mark: Mark) -> dict[str, Any]:
    return {**task.ask(), "probe": mark}
