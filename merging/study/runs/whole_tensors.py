"""The whole tensors of a merge on workers, largest first; this process writes the file.

Whole tensors are those that a chain decomposes, so that they cannot be merged in pieces; each is computed by itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

from merging.base.errors import MergingError
from merging.engine.chain_work import list_separable_tensors
from merging.engine.outputs import Rows, StoredSlot
from merging.models.formats.files_on_workers import digest_for_request
from merging.study.runs.estimate import tensor_bytes
from merging.study.runs.opened_recipe import OpenedRecipe
from merging.study.runs.tensor_task import read_tensor_file
from merging.tasks.context import Context
from merging.tasks.kinds import TENSOR, Plain
from merging.tasks.workers.checking import is_same_hardware
from merging.tasks.workers.fan_out import WorkerTask
from merging.tasks.workers.pools import open_workers
from merging.tasks.workers.task_map import TaskMap
from merging.tasks.workers.workers import Workers

LOST_MESSAGE = "No part of this merge is stored. Resume when they are back; the merge then starts again."


@contextlib.contextmanager
def tensors_on_workers(opened: OpenedRecipe, context: Context) -> Iterator[TensorsOnWorkers | None]:
    """The tensors of a merge that the workers of the context compute while the block runs.

    None if there are no workers, if the chain has no tensors that can be merged separately, or if the workers' hardware
    differs from this process's, with a warning.

    Raises:
        RecipeError: a method is only registered in this process.
        ParameterError, WorkerError: the workers cannot be opened, or a tensor does not fit into their memory.
    """
    names = list_separable_tensors(opened.recipe, opened.pretrained, len(opened.experts)) if context.workers else []
    digests = [digest_for_request(checkpoint) for checkpoint in opened] if names else []
    if not names or not all(digests):  # workers do not see a checkpoint that is only in memory
        yield None
        return
    with open_workers(context) as workers:
        if workers is None or not is_same_hardware(workers, context.device, context.warn, "merge"):
            yield None
            return
        opened.recipe.refuse_elsewhere()
        workers.check_memory(tensor_bytes(opened, names), "a tensor")
        base = (opened.base or Path.cwd()).absolute()
        recipe = opened.recipe.to_plain()
        request = {"recipe": recipe, "base": str(base), "device": context.device, "digests": digests}
        yield TensorsOnWorkers(opened, names, request, workers, context)


@dataclass
class TensorsOnWorkers:
    """Whole tensors that workers compute: their ``names``, largest first, and the ``request`` that all share."""

    opened: OpenedRecipe
    names: Sequence[str]
    request: Plain
    workers: Workers
    context: Context

    def compute(self, on_tensor: Callable[[StoredSlot, Rows, str], None]) -> None:
        """Call ``on_tensor`` with each tensor as soon as it is computed, its rows, and a text about progress.

        Raises:
            MergingError: a tensor cannot be computed; the message contains its name. Cancelled: the user cancelled.
            WorkersGone: there was no worker for a minute.
        """
        infos, numbers = self.opened.pretrained.infos, count(1)

        def read_answer(task: WorkerTask, answer: Plain) -> tuple[StoredSlot, Rows]:
            return read_tensor_file(answer.get("file", b""), task.name, infos[task.name])

        def handle_tensor(_: WorkerTask, answer: tuple[StoredSlot, Rows]) -> None:
            on_tensor(*answer, f"Tensor {next(numbers)} of {len(self.names)}, on {self.workers.describe_count()}")

        tasks = [
            WorkerTask(name, partial(dict, self.request, name=name), nbytes=infos[name].nbytes) for name in self.names
        ]
        task_map = TaskMap(
            TENSOR,
            self.context.without_progress(),
            read_answer,
            handle_tensor,
            _raise_tensor_error,
            describe_remains=lambda: LOST_MESSAGE,
        )
        task_map.run(tasks, self.workers)


def _raise_tensor_error(task: WorkerTask, error: MergingError) -> None:
    """End the merge with the error of a tensor."""
    raise error if task.name in str(error) else type(error)(f"Tensor {task.name}: {error}")
