"""Computes tasks of one kind, one after another in this process or on workers, with the same answers."""

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
    """Raise the error of a task, which ends the work."""
    raise error


@dataclass
class TaskMap(Generic[A]):
    """Computes tasks of a kind in this process or on workers, with equal answers, and handles the answers.

    ``read_reply`` converts a worker's reply for a task to an answer. ``on_answer`` is called with each answer when it
    arrives, and ``on_error`` with each error; without ``on_error``, errors are only collected. A task for which
    ``is_stored`` is true, because its answer has been stored meanwhile, is not computed. ``total`` counts all tasks,
    including those answered before; 0 if there were none. If the kind writes into the store, its workers must see the
    store's ``folder``. ``describe_remains`` returns the sentence on what remains when all workers are gone.
    """

    kind: str
    context: Context
    read_reply: Callable[[WorkerTask, Plain], A]
    on_answer: Callable[[WorkerTask, A], None]
    on_error: Callable[[WorkerTask, MergingError], None] | None = None
    is_stored: Callable[[WorkerTask], bool] = lambda task: False
    total: int = 0
    folder: Path | None = None
    describe_remains: Callable[[], str] | None = None
    noun: str = ""  # what a task is in words, by default that of its kind
    _failures: dict[str, MergingError] = field(default_factory=dict, init=False)
    _done: int = field(default=0, init=False)
    _paused: bool = field(default=False, init=False)

    def run(self, tasks: Sequence[WorkerTask], workers: Workers | None) -> dict[str, MergingError]:
        """Compute the tasks in their order in this process, or on workers; return the collected errors by task name.

        Raises:
            MergingError: raised by ``on_answer`` or ``on_error``. StoreError: the disk cannot be written to.
            Cancelled: a cancellation was requested.
            Paused: a pause was requested for a kind that is stored; all tasks that had begun are done.
            WorkersGone: there was no worker for a minute.
        """
        kind, self.total = find_kind(self.kind), self.total or len(tasks)
        assert kind.writes_to_store == (self.folder is not None)
        self._noun, self._stored, self._done = self.noun or kind.noun, kind.stored, self.total - len(tasks)
        if not tasks or workers is None:
            self._compute_here(tasks)
        elif self.folder is None:
            self._compute_on(workers, tasks)
        else:
            self._compute_in_store(workers, tasks, self.folder)
        if self._paused:
            raise Paused(f"Paused. {self._describe_stored()}")
        return self._failures

    def _describe_stored(self) -> str:
        return f"{self._done} of {self.total} {self._noun}s are stored."

    def _find_missing_tasks(self, tasks: Sequence[WorkerTask]) -> Iterator[WorkerTask]:
        """The tasks without a stored answer, checked one by one until a pause is requested."""
        for task in tasks:
            self.context.check()
            if self._stored and self.context.is_pause_requested():
                self._paused = True
                return
            if self.is_stored(task):
                self._done += 1
            else:
                yield task

    def _fail(self, task: WorkerTask, error: MergingError) -> None:
        if self.on_error is not None:
            self.on_error(task, error)
        self._failures[task.name] = error

    def _accept(self, task: WorkerTask, answer: A) -> None:
        self.on_answer(task, answer)
        self._done += 1

    def _compute_here(self, tasks: Sequence[WorkerTask]) -> None:
        """Compute one task after another in this process, each with its part of the progress."""
        parts = self.context.split({task.name: task.work for task in tasks})
        for task in self._find_missing_tasks(tasks):
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
        """Let workers write into the store, or compute in this process if a worker does not see the store's folder."""
        with write_mark(folder) as mark:
            if all(facts["sees_store"] for facts in question_workers(workers, self.context.device, mark)):
                self._compute_on(
                    workers, [replace(task, make_request=partial(_add_mark, task, mark)) for task in tasks], mark
                )
                return
        self.context.warn(f"{describe_unseen_store(folder)}, or {self._noun}s are computed here.")
        self._compute_here(tasks)

    def _compute_on(self, workers: Workers, tasks: Sequence[WorkerTask], mark: Mark | None = None) -> None:
        """Compute on workers; a ``mark`` is renewed as long as they write into the store."""

        def handle_reply(task: WorkerTask, reply: Plain) -> None:
            for sentence in reply.get("warnings", ()):
                self.context.warn(str(sentence))
            if mark is not None:
                Path(mark["path"]).touch()  # ``sweep`` would remove a mark that is a day old
            try:
                if (name := reply.get("name", task.name)) != task.name:
                    raise WorkerError(f"a worker answered with {self._noun} {name} instead of {task.name}.")
                answer = self.read_reply(task, reply)
            except MergingError as error:
                self._fail(task, error)
            else:
                self._accept(task, answer)

        fan = FanOut(self.kind, workers, handle_reply, self._fail, self.context, self.total, self._done)
        fan.noun = self._noun
        try:
            fan.run(self._find_missing_tasks(tasks), sum(task.work for task in tasks))
        except WorkersGone as gone:
            stored = f"{self._describe_stored()} Resume when they are back." if self._stored else ""
            raise WorkersGone(
                f"{gone} {self.describe_remains() if self.describe_remains else stored}".strip()
            ) from None


def _add_mark(task: WorkerTask, mark: Mark) -> dict[str, Any]:
    return {**task.make_request(), "probe": mark}  # the key by which workers find the mark
