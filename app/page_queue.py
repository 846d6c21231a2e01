"""Draws pages one after the other: many at once slow each other down, until all take as long as the last one.

A slow page, which reads or computes something for the first time, does not hold up the others. Callbacks and parts of a
page that are drawn alone do not wait; Streamlit runs them in another way.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

SLOW_SECONDS = 0.3  # seconds after which a page that is being drawn no longer holds up the next one


class PageQueue:
    """A queue of threads; the first waiting one proceeds when those before it are done or slow."""

    def __init__(self, slow: float = SLOW_SECONDS) -> None:
        self._slow = slow
        self._lock = threading.Lock()
        self._line: deque[threading.Event] = deque()
        self._begun: dict[threading.Event, float] = {}  # start times of the threads that draw

    @property
    def waiting_count(self) -> int:
        """The number of waiting threads."""
        return len(self._line)

    @property
    def drawing_count(self) -> int:
        """The number of threads that draw."""
        return len(self._begun)

    @contextmanager
    def wait_for_turn(self) -> Iterator[None]:
        """Wait for the turn of a page; active while the page is drawn."""
        mine = threading.Event()
        with self._lock:
            self._line.append(mine)
        try:
            while (seconds := self._wait(mine)) > 0:
                mine.wait(seconds)
                mine.clear()
            yield
        finally:
            with self._lock:
                if mine in self._line:  # it ended before its turn came
                    self._line.remove(mine)
                self._begun.pop(mine, None)
                self._wake()

    def _wait(self, mine: threading.Event) -> float:
        """Begin and return 0 if it is the turn of ``mine``.

        Otherwise the seconds after which to ask again, unless woken.
        """
        with self._lock:
            if self._line[0] is not mine:
                return self._slow
            youngest = max(self._begun.values(), default=float("-inf"))
            if (left := youngest + self._slow - time.monotonic()) > 0:
                return left
            self._line.popleft()
            self._begun[mine] = time.monotonic()
            self._wake()
            return 0.0

    def _wake(self) -> None:
        if self._line:
            self._line[0].set()


PAGES = PageQueue()  # the queue of this server
