"""Workers that compute tasks: an executor of ``concurrent.futures`` with further facts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import BrokenExecutor, Executor
from dataclasses import dataclass
from typing import Any

from merging.base.errors import WorkerError
from merging.base.text import size_text


def _shut_down(executor: Executor) -> None:
    executor.shutdown(wait=False)  # waiting futures are cancelled already; some executors lack ``cancel_futures``


@dataclass
class Workers:
    """Open workers. A broken ``executor`` is replaced by a new one, which ``make_executor`` returns.

    ``title`` names the workers in sentences, such as "the 4 worker processes". ``ask_each`` sends one request to every
    worker and returns {worker's address: answer}; None if the backend cannot do that. ``restrict`` returns the workers
    with these answers to the task "about", including later workers of the same kind; if its second argument is True,
    only workers on the same machines. It is None if the backend cannot leave workers out.
    """

    executor: Executor
    count: int  # tasks that run at the same time
    loss_errors: tuple[type[BaseException], ...] = (BrokenExecutor,)  # exceptions of a future whose worker is gone
    make_executor: Callable[[], Executor] | None = None  # set if a lost worker breaks the executor
    title: str = "the workers"
    has_workers: Callable[[], bool] = lambda: True  # whether there is any worker
    close: Callable[[Executor], None] = _shut_down
    ask_each: Callable[[str, bytes], Mapping[str, bytes]] | None = None
    restrict: Callable[[Collection[Mapping[str, Any]], bool], Workers] | None = None
    max_count: int = 0  # the largest ``count`` so far
    kind: str = ""  # the "kind" that all workers answer to the task "about", once they are checked
    hardware: str = ""  # their hardware, once they are checked
    memory: int = 0  # bytes that every worker may take; 0: unknown

    def check_memory(self, needed: int, work_name: str) -> None:
        """Raise WorkerError if ``work_name``, such as "a point", needs more bytes than every worker may take."""
        if 0 < self.memory < needed:
            raise WorkerError(
                f"{work_name.capitalize()} needs about {size_text(needed)} of memory; the workers have "
                f"{size_text(self.memory)} each. Start fewer on a machine, or with more --memory."
            )

    def describe_count(self) -> str:
        """The number of workers as text: "7 workers, 1 lost"."""
        self.max_count = max(self.max_count, self.count)
        lost_text = f", {self.max_count - self.count} lost" if self.count < self.max_count else ""
        return f"{self.count} worker{'s' * (self.count != 1)}{lost_text}"
