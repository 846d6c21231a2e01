"""Times that pages take to draw, for the host of a server: by page, without content or visitors."""

from __future__ import annotations

import statistics
import threading
from collections import defaultdict, deque

MAX_TIMES = 200  # the latest times of each page

_lock = threading.Lock()
_times: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=MAX_TIMES))


def forget_times() -> None:
    """Forget all times, for tests."""
    with _lock:
        _times.clear()


def note_time(page: str, seconds: float) -> None:
    """Record that a page was drawn in ``seconds``."""
    with _lock:
        _times[page or "home"].append(seconds)


def slow_pages() -> list[dict[str, float | int | str]]:
    """For each page the number of its latest drawings, their median, 95 % quantile and maximum in seconds."""
    with _lock:
        by_page = {page: sorted(times) for page, times in _times.items()}
    rows: list[dict[str, float | int | str]] = [
        {
            "page": page, "drawn": len(times), "median": round(statistics.median(times), 3),
            "p95": round(times[min(len(times) - 1, int(0.95 * len(times)))], 3), "max": round(times[-1], 3),
        }
        for page, times in by_page.items()
    ]  # fmt: skip
    return sorted(rows, key=lambda row: float(row["p95"]), reverse=True)
