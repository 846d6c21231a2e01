"""Draws pages one after the other: many at once slow each other down, until all take as long as the last one.

A slow page, which reads or computes something for the first time, does not hold up the others. Callbacks and parts of a
page that are drawn alone do not wait; Streamlit runs them in another way.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SLOW_SECONDS = 0.3  # seconds after which a page that is being drawn no longer holds up the next one
LOOK_SECONDS = 0.1  # seconds between two checks for a page that is drawn


class PageQueue:
    """A queue of threads; the first waiting one proceeds when those before it are done or slow."""

    def __init__(self, slow: float = SLOW_SECONDS) -> None:
        self._slow_seconds = slow
        self._lock = threading.Lock()
        self._waiting: deque[threading.Event] = deque()
        self._start_times: dict[threading.Event, float] = {}  # start times of the threads that draw
        self._last_end = time.monotonic()  # when a page was last finished

    @property
    def waiting_count(self) -> int:
        """The number of waiting threads."""
        return len(self._waiting)

    @property
    def drawing_count(self) -> int:
        """The number of threads that draw."""
        return len(self._start_times)

    def wait_until_idle(self, seconds: float, is_ending: Callable[[], bool]) -> bool:
        """Wait until no page has been drawn for ``seconds``; returns False, without waiting, once ``is_ending``."""
        while not is_ending():
            if not (self._start_times or self._waiting) and time.monotonic() - self._last_end >= seconds:
                return True
            time.sleep(LOOK_SECONDS)
        return False

    @contextmanager
    def wait_for_turn(self) -> Iterator[None]:
        """Wait for the turn of a page; active while the page is drawn."""
        turn = threading.Event()
        with self._lock:
            self._waiting.append(turn)
        try:
            while (seconds := self._try_to_begin(turn)) > 0:
                turn.wait(seconds)
                turn.clear()
            yield
        finally:
            with self._lock:
                if turn in self._waiting:  # the thread ended before its turn
                    self._waiting.remove(turn)
                self._start_times.pop(turn, None)
                self._last_end = time.monotonic()
                self._wake_first()

    def _try_to_begin(self, turn: threading.Event) -> float:
        """Begin and return 0 if the thread of ``turn`` is the first one that waits and may proceed.

        Otherwise return the seconds after which to try again, unless ``turn`` is set before.
        """
        with self._lock:
            if self._waiting[0] is not turn:
                return self._slow_seconds
            youngest = max(self._start_times.values(), default=float("-inf"))
            if (seconds_left := youngest + self._slow_seconds - time.monotonic()) > 0:
                return seconds_left
            self._waiting.popleft()
            self._start_times[turn] = time.monotonic()
            self._wake_first()
            return 0.0

    def _wake_first(self) -> None:
        if self._waiting:
            self._waiting[0].set()


PAGE_QUEUE = PageQueue()  # the queue of this server
