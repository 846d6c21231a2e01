"""The joint progress of several fetches: bytes received, the recent rate, and the time left."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import replace

from merging.base.progress import Progress
from merging.base.text import size_text
from merging.tasks.context import Context

RATE_SECONDS = 10.0  # seconds over which the rate is measured
MIN_RATE_SECONDS = 0.5  # least seconds over which a rate is measured


class FetchProgress:
    """Progress over consecutive fetches; ``total`` is the number of bytes of all of them."""

    def __init__(self, total: int, context: Context) -> None:
        self._total, self._context = total, context
        self._before, self._current = 0, 0  # bytes of earlier fetches, and of the current fetch
        self._samples = deque([(time.monotonic(), 0)])  # (time, bytes received until then)

    def next_context(self) -> Context:
        """The context of the next fetch."""
        self._before, self._current = self._before + self._current, 0
        return self._context if self._context.progress is None else replace(self._context, progress=self._report)

    def _report(self, inner: Progress) -> None:
        self._current = inner.done
        done = self._before + self._current
        rate = self._rate(done)
        total = max(self._total, done)
        seconds_left = None if rate is None else (total - done) / rate
        progress_text = f"{size_text(done)} of {size_text(total)}"
        progress_text += "" if rate is None else f", {size_text(rate)}/s"
        progress_text += f": {inner.detail.strip()}" if inner.detail.strip() else ""
        assert self._context.progress is not None  # else ``next_context`` would not pass this callback
        self._context.progress(Progress(inner.phase, done, total, seconds_left, progress_text))

    def _rate(self, done: int) -> float | None:
        """Recent bytes per second; None before it can be measured."""
        now = time.monotonic()
        self._samples.append((now, done))
        while len(self._samples) > 2 and now - self._samples[1][0] > RATE_SECONDS:
            self._samples.popleft()
        start, bytes_at_start = self._samples[0]
        return (
            (done - bytes_at_start) / (now - start)
            if now - start > MIN_RATE_SECONDS and done > bytes_at_start
            else None
        )
