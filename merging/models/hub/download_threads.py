"""The line to the Hub that the downloads of one call share: when to stop, how fast to be, and when to try again."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable
from email.utils import parsedate_to_datetime
from queue import Empty, SimpleQueue
from typing import TypeVar

from merging.base.errors import Cancelled
from merging.models.hub.client import utilities
from merging.models.hub.hub_errors import classes, status_of

T = TypeVar("T")

RETRIES, FIRST_DELAY, LONGEST_DELAY = 5, 1.0, 8.0  # seconds; each delay is twice the one before
LONGEST_WAIT = 900.0  # seconds that a server may ask to wait
POLL_SECONDS, GRACE = (
    0.2,
    0.3,
)  # seconds between two looks whether to stop, and until a thread that waits is left behind
NO_CONNECTION = {"ConnectError", "ConnectTimeout"}  # there is no connection, unless there was one a moment ago
TEMPORARY = {"TimeoutException", "NetworkError", "RemoteProtocolError", "BrokenOffError"}


class BrokenOffError(Exception):
    """Fewer bytes came than the file has."""


class DownloadThreads:
    """What the threads of one call share; ``limit_rate`` is in bytes a second."""

    def __init__(self, limit_rate: float | None = None) -> None:
        self._limit, self._free_at = limit_rate, 0.0
        self._lock, self._stop, self._news = threading.Lock(), threading.Event(), SimpleQueue[tuple[int, str]]()
        self._reached = False

    def wait(self, seconds: float = 0.0) -> None:
        """Wait, and raise Cancelled as soon as the call has ended."""
        if self._stop.wait(seconds):
            raise Cancelled("Cancelled.")

    def report_bytes(self, count: int, name: str) -> None:
        """Report bytes of a file that came, or with a negative count bytes that have to come again; keeps the rate."""
        self._news.put((count, name))
        if self._limit and count > 0:
            with self._lock:
                self._free_at = max(time.monotonic(), self._free_at) + count / self._limit
                delay = self._free_at - time.monotonic()
            self.wait(max(0.0, delay))

    def call_with_retries(self, call: Callable[[], T], done: Callable[[], int] = lambda: 0) -> T:
        """What ``call`` gives. After failures that pass it is tried again, five times if ``done`` does not grow."""
        failures, before = 0, done()
        while True:
            try:
                answer = call()
                self._reached = True
                return answer
            except Exception as error:
                failures, before = (1 if done() > before else failures + 1), done()
                self._reached |= bool(status_of(error))
                delay = self._delay(error, failures)
                if delay is None or failures > RETRIES:
                    raise
            self.wait(delay)

    def _delay(self, error: Exception, failures: int) -> float | None:
        """Seconds after which to try again; None for an error that stays."""
        status, names = status_of(error), classes(error)
        if not (status in {408, 429} or status >= 500 or names & TEMPORARY):
            return None
        if (names & NO_CONNECTION and not self._reached) or "CERTIFICATE_VERIFY_FAILED" in str(error):
            return None
        stated = _stated_delay(error) if status else None
        return min(FIRST_DELAY * 2 ** (failures - 1), LONGEST_DELAY) if stated is None else min(stated, LONGEST_WAIT)

    def run(self, tasks: Iterable[Callable[[], None]], workers: int, on_bytes: Callable[[int, str], None]) -> None:
        """Run tasks in threads. ``listen`` hears in this thread of bytes that came, or of none, and may raise to stop.

        The first error of a task is raised. A thread that waits for an answer of the network is left behind.
        """
        shared, errors = iter(tuple(tasks)), list[BaseException]()

        def work() -> None:
            try:
                for task in shared:
                    self.wait()
                    task()
            except BaseException as error:
                errors.append(error)
            self._news.put((0, ""))

        threads = [threading.Thread(target=work, daemon=True) for _ in range(workers)]
        try:
            for thread in threads:
                thread.start()
            while not errors and (any(thread.is_alive() for thread in threads) or not self._news.empty()):
                try:
                    heard = self._news.get(timeout=POLL_SECONDS)
                except Empty:
                    heard = (0, "")
                on_bytes(*heard)
        finally:
            self._stop.set()
            end = time.monotonic() + GRACE
            for thread in threads:
                thread.join(max(0.0, end - time.monotonic()))
        if errors:
            raise errors[0]


def _stated_delay(error: Exception) -> float | None:
    """The seconds that a server asks to wait; None if it does not."""
    headers = getattr(getattr(error, "response", None), "headers", {})
    stated = str(headers.get("Retry-After", "")).strip()
    if stated.isdecimal():
        return float(stated)
    with contextlib.suppress(ValueError):
        return max(0.0, parsedate_to_datetime(stated).timestamp() - time.time())
    limit = utilities().parse_ratelimit_headers(headers) if status_of(error) == 429 else None
    return float(limit.reset_in_seconds) if limit and not limit.remaining else None
