"""The whole tensors of a merge on workers: the largest first; this process writes the one file."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from merging.engine.outputs import Rows, Stored
from merging.engine.work import one_by_one
from merging.errors import MergingError, WorkersGone
from merging.formats.handed_out import handed_out
from merging.runs.estimate import tensor_bytes
from merging.runs.inputs import OpenedRecipe
from merging.runs.remote.tensor_file import stored_of
from merging.tasks.context import Context
from merging.tasks.kinds import TENSOR, Plain
from merging.workers import pools
from merging.workers.checking import same_hardware
from merging.workers.fan_out import FanOut, WorkerTask
from merging.workers.workers import Workers


@contextlib.contextmanager
def tensors_on_workers(opened: OpenedRecipe, spec: str, context: Context) -> Iterator[TensorsOnWorkers | None]:
    """The tensors of a merge that the workers of ``spec`` compute while the block runs.

    None where it names no workers, where the chain has no tensors of that kind, or where they would differ from those
    that are computed here; a warning says so.

    Raises:
        ParameterError, WorkerError: the workers cannot be opened, or a tensor does not fit into their memory.
    """
    names = one_by_one(opened.recipe, opened.pretrained, len(opened.experts)) if spec.strip() else []
    digests = [handed_out(checkpoint) for checkpoint in opened] if names else []
    if not names or not all(digests):  # what lies in memory alone is seen by no worker
        yield None
        return
    with pools.opened(spec, context.warn, context.device) as workers:
        if workers is None or not same_hardware(workers, context.device, context.warn, "merge"):
            yield None
            return
        workers.check_memory(tensor_bytes(opened, names), "a tensor")
        base = (opened.base or Path.cwd()).absolute()
        recipe = opened.recipe.plain()
        asked = {"recipe": recipe, "base": str(base), "device": context.device, "digests": digests}
        yield TensorsOnWorkers(opened, names, asked, workers, context)


@dataclass
class TensorsOnWorkers:
    """Whole tensors that workers compute. ``names`` are theirs, the largest first; ``asked`` is said for each."""

    opened: OpenedRecipe
    names: Sequence[str]
    asked: Plain
    workers: Workers
    context: Context

    def compute(self, take: Callable[[Stored, Rows, str], None]) -> None:
        """Hand on each tensor as it comes, with the words of progress.

        Raises:
            MergingError: a tensor cannot be computed; the message begins with its name. Cancelled: as asked.
            WorkersGone: there was no worker for a minute.
        """
        infos = self.opened.pretrained.infos

        def take_file(task: WorkerTask, answer: Plain) -> None:
            stored, rows = stored_of(answer.get("file", b""), task.name, infos[task.name])
            take(stored, rows, f"Tensor {fan.arrived + 1} of {len(self.names)}, on {self.workers.words()}")

        fan = FanOut(TENSOR, self.workers, take_file, _fail, self.context.silent(), len(self.names))
        try:
            fan.run([WorkerTask(name, partial(self._ask, name), nbytes=infos[name].nbytes) for name in self.names])
        except WorkersGone as gone:
            raise WorkersGone(
                f"{gone} Nothing of this merge is kept. Resume when they are back; it begins anew."
            ) from None

    def _ask(self, name: str) -> Plain:
        return {**self.asked, "name": name}


def _fail(task: WorkerTask, error: MergingError) -> None:
    """End the merge with the error of a tensor."""
    raise error if task.name in str(error) else type(error)(f"Tensor {task.name}: {error}")
