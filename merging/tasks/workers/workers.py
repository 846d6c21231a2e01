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
    """Open workers. ``executor`` is replaced when it breaks and is renewed.

    ``each`` sends one request to every worker and returns the answers by the worker's address, if the engine can.
    ``only`` restricts the workers to those with these answers to the task "about", and to later workers of the same
    kind; with True, to the same machines, too.
    """

    executor: Executor
    count: int  # tasks that run at the same time
    loss_errors: tuple[type[BaseException], ...] = (BrokenExecutor,)  # raised by a future whose worker is gone
    make_executor: Callable[[], Executor] | None = None  # a new executor, if such a loss breaks the executor
    title: str = "the workers"
    has_workers: Callable[[], bool] = lambda: True  # whether there is any worker
    close: Callable[[Executor], None] = _shut_down
    ask_each: Callable[[str, bytes], Mapping[str, bytes]] | None = None
    restrict: Callable[[Collection[Mapping[str, Any]], bool], Workers] | None = None
    max_count: int = 0  # the largest count so far
    kind: str = ""  # their common "kind" of the task "about", after the check
    hardware: str = ""  # their hardware, after the check
    memory: int = 0  # bytes that every worker may take; 0: unknown

    def check_memory(self, needed: int, what: str) -> None:
        """Raise WorkerError if ``what``, such as "a point", needs more bytes than every worker may take."""
        if 0 < self.memory < needed:
            raise WorkerError(
                f"{what.capitalize()} needs about {size_text(needed)} of memory; the workers have "
                f"{size_text(self.memory)} each. Start fewer on a machine, or with more --memory."
            )

    def describe_count(self) -> str:
        """The number of workers as text: "7 workers, 1 lost"."""
        self.max_count = max(self.max_count, self.count)
        lost = f", {self.max_count - self.count} lost" if self.count < self.max_count else ""
        return f"{self.count} worker{'s' * (self.count != 1)}{lost}"
