"""Download threads that share cancellation, a rate limit and rules for retries."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable
from email.utils import parsedate_to_datetime
from queue import Empty, SimpleQueue
from typing import TypeVar

from merging.base.errors import Cancelled
from merging.models.hub.client import load_utilities
from merging.models.hub.hub_errors import class_names, http_status

T = TypeVar("T")

MAX_RETRIES, FIRST_DELAY, MAX_DELAY = 5, 1.0, 8.0  # delays in seconds, each twice as long as the one before
MAX_STATED_DELAY = 900.0  # seconds; longer delays that a server states are shortened to this
POLL_SECONDS = 0.2  # between checks whether to stop
GRACE_SECONDS = 0.3  # that threads have for ending
CONNECT_ERRORS = {"ConnectError", "ConnectTimeout"}  # errors that are final unless an earlier call reached the Hub
TEMPORARY_ERRORS = {"TimeoutException", "NetworkError", "RemoteProtocolError", "BrokenOffError"}


class BrokenOffError(Exception):
    """The connection ended before all bytes of the file had arrived."""


class DownloadThreads:
    """The threads of one fetch and their shared state; ``limit_rate`` is in bytes per second."""

    def __init__(self, limit_rate: float | None = None) -> None:
        self._limit, self._free_at = limit_rate, 0.0
        self._lock, self._stop, self._reports = threading.Lock(), threading.Event(), SimpleQueue[tuple[int, str]]()
        self._had_response = False

    def wait(self, seconds: float = 0.0) -> None:
        """Wait, and raise Cancelled as soon as the call has ended."""
        if self._stop.wait(seconds):
            raise Cancelled("Cancelled.")

    def report_bytes(self, count: int, name: str) -> None:
        """Report received bytes, or a negative count of bytes to receive again; wait if the rate exceeds the limit."""
        self._reports.put((count, name))
        if self._limit and count > 0:
            with self._lock:
                self._free_at = max(time.monotonic(), self._free_at) + count / self._limit
                delay = self._free_at - time.monotonic()
            self.wait(max(0.0, delay))

    def call_with_retries(self, call: Callable[[], T], count_done: Callable[[], int] = lambda: 0) -> T:
        """The result of ``call``, which is retried after temporary errors.

        The error is raised after more than five failures during which ``count_done`` did not grow.
        """
        failures, last_count = 0, count_done()
        while True:
            try:
                answer = call()
                self._had_response = True
                return answer
            except Exception as error:
                failures, last_count = (1 if count_done() > last_count else failures + 1), count_done()
                self._had_response |= bool(http_status(error))
                delay = self._delay(error, failures)
                if delay is None or failures > MAX_RETRIES:
                    raise
            self.wait(delay)

    def _delay(self, error: Exception, failures: int) -> float | None:
        """Seconds to wait before a retry; None for a permanent error."""
        status, names = http_status(error), class_names(error)
        if not (status in {408, 429} or status >= 500 or names & TEMPORARY_ERRORS):
            return None
        if (names & CONNECT_ERRORS and not self._had_response) or "CERTIFICATE_VERIFY_FAILED" in str(error):
            return None
        stated_delay = _stated_delay(error) if status else None
        return (
            min(FIRST_DELAY * 2 ** (failures - 1), MAX_DELAY)
            if stated_delay is None
            else min(stated_delay, MAX_STATED_DELAY)
        )

    def run(self, tasks: Iterable[Callable[[], None]], workers: int, on_bytes: Callable[[int, str], None]) -> None:
        """Run tasks in threads until all are done or one fails.

        The calling thread calls ``on_bytes`` with every report, and with 0 bytes between reports. It may raise to
        stop. Threads that are waiting for the network are then abandoned.

        Raises:
            BaseException: the first error of a task.
        """
        task_iterator, errors = iter(tuple(tasks)), list[BaseException]()

        def work() -> None:
            try:
                for task in task_iterator:
                    self.wait()
                    task()
            except BaseException as error:
                errors.append(error)
            self._reports.put((0, ""))

        threads = [threading.Thread(target=work, daemon=True) for _ in range(workers)]
        try:
            for thread in threads:
                thread.start()
            while not errors and (any(thread.is_alive() for thread in threads) or not self._reports.empty()):
                try:
                    report = self._reports.get(timeout=POLL_SECONDS)
                except Empty:
                    report = (0, "")
                on_bytes(*report)
        finally:
            self._stop.set()
            end = time.monotonic() + GRACE_SECONDS
            for thread in threads:
                thread.join(max(0.0, end - time.monotonic()))
        if errors:
            raise errors[0]


def _stated_delay(error: Exception) -> float | None:
    """The delay in seconds that a server's response states; None if it states none."""
    headers = getattr(getattr(error, "response", None), "headers", {})
    retry_after = str(headers.get("Retry-After", "")).strip()
    if retry_after.isdecimal():
        return float(retry_after)
    with contextlib.suppress(ValueError):
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    limit = load_utilities().parse_ratelimit_headers(headers) if http_status(error) == 429 else None
    return float(limit.reset_in_seconds) if limit and not limit.remaining else None
