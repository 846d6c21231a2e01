"""The context of a computation: its device, its progress callback, and the requests that can end or pause it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol, Self

from merging.base.progress import Cancel, Meter, Phases, Progress, ProgressCallback, is_cancel_requested

log_warning: Callable[[str], None] = logging.getLogger("merging").warning


class OpenWorkers(Protocol):
    """Open workers, such as ``merging.tasks.workers.workers.Workers``."""

    def describe_count(self) -> str:
        """How many workers there are, as text."""
        ...


@dataclass(frozen=True)
class Context:
    """The context of a computation; the result does not depend on it, up to rounding on another device.

    A phase is the name of a part of the work in a Progress, its detail names the current item. ``device`` is "auto"
    (CUDA, then MPS, then CPU) or a torch device name. ``progress`` is called with a Progress after every piece of work.
    ``cancel`` and ``pause`` are checked between two pieces of work: ``cancel`` ends the computation, and ``pause``
    stops a computation that can continue later. ``warn`` is called with each sentence about a possible flaw of the
    result. ``workers`` compute work that consists of tasks. They are open workers, or a text as in MERGESCOPE_WORKERS;
    with an empty text, this process computes.
    """

    device: str = "auto"
    progress: ProgressCallback | None = None
    cancel: Cancel | None = None
    pause: Cancel | None = None
    warn: Callable[[str], None] = log_warning
    workers: str | OpenWorkers = ""

    def check(self) -> None:
        """Raise Cancelled if a cancellation is requested."""
        self.meter(0).check()

    def is_pause_requested(self) -> bool:
        """Whether the computation is asked to pause."""
        return is_cancel_requested(self.pause)

    def meter(self, total: int) -> Meter:
        """A meter of ``total`` units of work with the progress and cancel of this context."""
        return Meter(total, self.progress, self.cancel)

    def split(self, weights: Mapping[str, float]) -> dict[str, Self]:
        """A context for each part, {name: context}; their progress adds up to one fraction, divided by ``weights``."""
        phases = Phases(weights, self.progress)
        return {name: replace(self, progress=phases.callback(name)) for name in weights}

    def with_title(self, words: str) -> Self:
        """This context with phases that begin with ``words``, such as "Run 2 of 3"."""

        def report(inner: Progress) -> None:
            assert self.progress is not None
            self.progress(replace(inner, phase=f"{words}: {inner.phase}"))

        return self if self.progress is None else replace(self, progress=report)

    def with_phase(self, words: str) -> Self:
        """This context with the phase ``words``, such as "Point 2 of 200"; the inner phase becomes the detail."""

        def report(inner: Progress) -> None:
            assert self.progress is not None
            self.progress(replace(inner, phase=words, detail=inner.phase))

        return self if self.progress is None else replace(self, progress=report)

    def without_progress(self) -> Self:
        """This context without progress, for work that its caller reports."""
        return replace(self, progress=None)

    def without_workers(self) -> Self:
        """This context without workers, for work that this process computes."""
        return replace(self, workers="")

    def on_device(self, device: object) -> Self:
        """This context on another device, a torch device or its name."""
        return replace(self, device=str(device))


QUIET = Context()  # reports no progress and cannot be cancelled
