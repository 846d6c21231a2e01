"""What is said of workers: how far they are, who was lost, and that a worker sees other files."""

from __future__ import annotations

import platform
from collections.abc import Collection
from dataclasses import dataclass

from merging.errors import WorkerError
from merging.progress import Meter
from merging.text import plural
from merging.workers.fan_out import Workers


@dataclass
class Arrivals:
    """Counts what comes back from workers, as "Point 37 of 200, on 8 workers"; ``arrived`` were there before."""

    what: str
    total: int
    workers: Workers
    meter: Meter
    arrived: int = 0

    def count(self, work: int = 1) -> None:
        """Count one more, which is so much work. Raises Cancelled if asked to stop."""
        self.arrived += 1
        self.meter.advance(work, self._words())

    def tell(self) -> None:
        """Report how many workers there are now. Raises Cancelled if asked to stop."""
        self.meter.within(0, self._words())

    def _words(self) -> str:
        return f"{self.what} {self.arrived} of {self.total}, on {self.workers.words()}"

    def skip(self, work: int, count: int) -> None:
        """So many are there already, which is so much work that needs no time."""
        self.arrived += count
        self.meter.total -= work

    def lost(self, names: Collection[str]) -> str:
        """That a worker was lost, and how many are computed again."""
        word = self.what.lower()
        again = plural(len(names), f"{word} is", f"{word}s are")
        return f"A worker was lost; {again} computed again."


def sees_others(what: str) -> WorkerError:
    """This worker has other files than the program that asked."""
    return WorkerError(
        f"Worker {platform.node()} sees other checkpoints or images than the program that asked for this {what}. "
        "Copy the files there again, or put them where all workers read."
    )


def does_not_see_store(folder: object) -> str:
    """That workers cannot write into a store; without the period."""
    return f"The workers do not see the store at {folder}; put MERGESCOPE_STORE on a file system that all share"
