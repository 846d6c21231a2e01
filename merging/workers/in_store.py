"""Tasks whose results workers write into the store themselves, where they see its folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from merging.errors import MergingError, Paused, WorkerError, WorkersGone
from merging.tasks.context import Context
from merging.tasks.kinds import Plain
from merging.tasks.store_mark import Mark, does_not_see_store, marked
from merging.workers.checking import survey
from merging.workers.fan_out import FanOut, WorkerTask
from merging.workers.workers import Workers


def compute_in_store(
    kind: str, tasks: Sequence[WorkerTask], folder: Path, workers: Workers, context: Context, total: int
) -> dict[str, MergingError] | None:
    """Let workers write results into the store at ``folder``; the errors of those that fail, by name.

    ``total`` counts the tasks with those whose results are there. None if some worker does not see the store.

    Raises:
        Cancelled, Paused: as asked. WorkersGone: there was no worker for a minute. What is finished is kept.
    """
    failures, begun = dict[str, MergingError](), list[str]()
    with marked(folder) as mark:

        def take(task: WorkerTask, answer: Plain) -> None:
            for sentence in answer["warnings"]:
                context.warn(str(sentence))
            if answer.get("name") != task.name:
                failures[task.name] = WorkerError(f"a worker wrote {answer.get('name')} instead of {task.name}.")
            Path(mark["path"]).touch()  # what is a day old would be swept up

        def fail(task: WorkerTask, error: MergingError) -> None:
            failures[task.name] = error

        def begin() -> Iterator[WorkerTask]:
            for task in tasks:
                if context.pauses():
                    return
                begun.append(task.name)
                yield replace(task, ask=partial(_with_mark, task, mark))

        fan = FanOut(kind, workers, take, fail, context, total, total - len(tasks))
        if not all(each["sees_store"] for each in survey(workers, context.device, mark)):
            context.warn(f"{does_not_see_store(folder)}, or {fan.noun}s are computed here.")
            return None
        try:
            fan.run(begin(), len(tasks))
        except WorkersGone as gone:
            raise WorkersGone(f"{gone} {fan.arrived - len(failures)} of {total} {fan.noun}s are kept.") from None
    if len(begun) < len(tasks):
        raise Paused(f"Paused. {fan.arrived - len(failures)} of {total} {fan.noun}s are kept.")
    return failures


def _with_mark(task: WorkerTask, mark: Mark) -> Plain:
    return {**task.ask(), "probe": mark}
