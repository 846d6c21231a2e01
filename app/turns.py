"""Pages are drawn one after the other: many at once hinder each other, and then all take as long as the last one.

A page that takes long, because it reads or computes something for the first time, does not hold up the others.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

SLOW = 0.3  # seconds after which a page that is being drawn no longer holds up the next one

_lock = threading.Lock()
_waiting: deque[threading.Event] = deque()
_begun: dict[threading.Event, float] = {}  # when the pages that are being drawn began


@contextmanager
def turn() -> Iterator[None]:
    """While a page is drawn; it begins after those that came before it are done or slow."""
    mine = threading.Event()
    with _lock:
        _waiting.append(mine)
    while (seconds := _wait(mine)) > 0:
        mine.wait(seconds)
        mine.clear()
    try:
        yield
    finally:
        with _lock:
            del _begun[mine]
            _wake()


def _wait(mine: threading.Event) -> float:
    """Begin and return 0 if it is this page's turn; else the seconds after which to ask again, unless woken before."""
    with _lock:
        if _waiting[0] is not mine:
            return SLOW
        youngest = max(_begun.values(), default=0.0)
        if (left := youngest + SLOW - time.monotonic()) > 0:
            return left
        _waiting.popleft()
        _begun[mine] = time.monotonic()
        _wake()
        return 0.0


def _wake() -> None:
    if _waiting:
        _waiting[0].set()
