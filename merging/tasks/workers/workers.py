"""Who computes tasks: an executor of ``concurrent.futures``, and what we know of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import BrokenExecutor, Executor
from dataclasses import dataclass
from typing import Any

from merging.base.errors import WorkerError
from merging.base.text import size_text


def _shut_down(executor: Executor) -> None:
    executor.shutdown(wait=False)  # what waits was cancelled; some executors know no ``cancel_futures``


@dataclass
class Workers:
    """Who computes. ``executor`` changes when it breaks and is renewed.

    ``each`` asks every worker the same and gives the answers by worker, where the engine can do that; ``only`` keeps
    the workers that gave these answers to ``about``, and of those that come later what is like them; with True it keeps
    those on the same machines alone.
    """

    executor: Executor
    count: int  # tasks that run at the same time
    lost: tuple[type[BaseException], ...] = (BrokenExecutor,)  # what a future raises when its worker is gone
    renew: Callable[[], Executor] | None = None  # where such a loss breaks the executor
    called: str = "the workers"
    present: Callable[[], bool] = lambda: True  # whether there is any worker
    close: Callable[[Executor], None] = _shut_down
    each: Callable[[str, bytes], Mapping[str, bytes]] | None = None
    only: Callable[[Collection[Mapping[str, Any]], bool], Workers] | None = None
    most: int = 0  # how many there were
    kind: str = ""  # what ``about`` calls them, once they were checked
    hardware: str = ""  # what they compute on, likewise
    memory: int = 0  # bytes that each may take, of the one that may take least; 0: unknown

    def check_memory(self, needed: int, what: str) -> None:
        """Raise WorkerError if ``what``, "a point" say, needs more bytes than each worker may take."""
        if 0 < self.memory < needed:
            raise WorkerError(
                f"{what.capitalize()} needs about {size_text(needed)} of memory; the workers have "
                f"{size_text(self.memory)} each. Start fewer on a machine, or with more --memory."
            )

    def describe_count(self) -> str:
        """How many there are: "7 workers, 1 lost"."""
        self.most = max(self.most, self.count)
        lost = f", {self.most - self.count} lost" if self.count < self.most else ""
        return f"{self.count} worker{'s' * (self.count != 1)}{lost}"
