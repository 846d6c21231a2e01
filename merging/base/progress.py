"""Progress, time left and cancellation, the same for every kind of long work."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from threading import Event

from merging.base.errors import Cancelled

Cancel = Event | Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a piece of work is. ``done`` and ``total`` count work (scalars or images), not time."""

    phase: str
    done: int
    total: int
    seconds_left: float | None  # None until enough work is done for an estimate
    detail: str = ""  # the current item, e.g. a tensor's name

    @property
    def fraction(self) -> float:
        """The fraction of the work that is done, in [0, 1]."""
        return min(1.0, self.done / self.total) if self.total else 1.0


ProgressCallback = Callable[[Progress], None]

_current_watchers: list[tuple[ProgressCallback | None, Cancel | None]] = [(None, None)]


@contextmanager
def watch_progress(progress: ProgressCallback | None = None, cancel: Cancel | None = None) -> Iterator[None]:
    """Set this process's default ``progress`` and ``cancel``, for work whose caller passes none.

    A download may begin wherever a model is opened. Without these defaults, every function that opens a model would
    have to pass them on.
    """
    outer = _current_watchers[-1]
    _current_watchers.append((progress or outer[0], cancel or outer[1]))
    try:
        yield
    finally:
        _current_watchers.pop()


def current_watchers() -> tuple[ProgressCallback | None, Cancel | None]:
    """The default progress callback and the default cancel, for work whose caller passes none."""
    return _current_watchers[-1]


def is_cancel_requested(cancel: Cancel | None) -> bool:
    """Whether ``cancel`` is an Event that is set, or a callable that returns True."""
    return cancel is not None and (cancel.is_set() if isinstance(cancel, Event) else cancel())


@contextmanager
def draw_bar() -> Iterator[ProgressCallback]:
    """A callback that draws a bar in a notebook or a terminal; the bar starts no thread and is closed at the end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # without ipywidgets the bar is one of text, with a warning
        from tqdm.auto import tqdm

    class Bar(tqdm):  # type: ignore[misc]
        monitor_interval = 0  # tqdm's thread outlives its bars

    with Bar(total=1.0, bar_format="{desc} {percentage:3.0f}%|{bar}| {elapsed}<{remaining}") as bar:

        def report(progress: Progress) -> None:
            bar.set_description_str(progress.phase, refresh=False)
            bar.update(progress.fraction - bar.n)

        yield report


class Meter:
    """Counts work, estimates the time left, and raises Cancelled on request."""

    def __init__(self, total: int, progress: ProgressCallback | None = None, cancel: Cancel | None = None) -> None:
        self.total, self.done = total, 0
        self._progress, self._cancel = progress, cancel
        self._started = time.monotonic()

    def silent(self) -> Meter:
        """A meter that reports nothing but raises Cancelled as this one, for work that another meter counts."""
        return Meter(0, None, self._cancel)

    def check(self) -> None:
        """Raise Cancelled if the caller wants to stop."""
        if is_cancel_requested(self._cancel):
            raise Cancelled("Cancelled; nothing was kept.")

    def advance(self, work: int, phase: str, detail: str = "") -> None:
        """Count ``work`` more units as done and report them, then raise Cancelled if the caller wants to stop."""
        self.done += work
        self.total = max(self.total, self.done)
        self.report_part(0, phase, detail)

    def report_part(self, work: int, phase: str, detail: str = "") -> None:
        """Report ``work`` units of the current piece as done without counting them; raise Cancelled if requested."""
        if self._progress is not None:
            done = min(self.done + work, self.total)
            seconds = time.monotonic() - self._started
            seconds_left = seconds * (self.total - done) / done if done and seconds > 0.2 else None
            self._progress(Progress(phase, done, self.total, seconds_left, detail))
        self.check()


class Phases:
    """One fraction over several pieces of work, each weighted by the time it is expected to take."""

    RESOLUTION = 10_000

    def __init__(self, weights: Mapping[str, float], progress: ProgressCallback | None) -> None:
        self._weights, self._progress = dict(weights), progress
        ends = list(accumulate(weights.values(), initial=0.0))
        self._before, self._total = dict(zip(weights, ends, strict=False)), ends[-1] or 1.0
        self._started = time.monotonic()

    def callback(self, phase: str) -> ProgressCallback | None:
        """The callback to which the work of one phase reports."""
        if self._progress is None:
            return None
        report, earlier_weight = self._progress, self._before[phase]

        def report_inner(inner: Progress) -> None:
            fraction = (earlier_weight + self._weights[phase] * inner.fraction) / self._total
            seconds = time.monotonic() - self._started
            seconds_left = seconds * (1 - fraction) / fraction if fraction > 0.01 and seconds > 0.2 else None
            report(
                Progress(inner.phase, round(fraction * self.RESOLUTION), self.RESOLUTION, seconds_left, inner.detail)
            )

        return report_inner
