"""What a computation is handed down: where it runs, who hears how far it is, and who can end or pause it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol, Self

from merging.base.progress import Cancel, Meter, Phases, Progress, ProgressCallback, is_cancel_requested

log_warning: Callable[[str], None] = logging.getLogger("merging").warning


class OpenWorkers(Protocol):
    """Workers that are open; ``merging.tasks.workers.workers`` has them."""

    def describe_count(self) -> str:
        """How many there are."""
        ...


@dataclass(frozen=True)
class Context:
    """The surroundings of a computation; its result depends on none of them, up to rounding on another device.

    ``device`` is "auto" (CUDA, then MPS, then CPU) or a torch device name. ``progress`` is called with a Progress after
    every piece of work. ``cancel`` and ``pause`` are asked between two pieces: the first ends the computation, and the
    second makes one that can go on later stop. ``warn`` gets each sentence on what may be wrong with the result.
    ``workers`` compute what consists of tasks: they are open, or named by a text as MERGESCOPE_WORKERS has it; empty:
    this process computes.
    """

    device: str = "auto"
    progress: ProgressCallback | None = None
    cancel: Cancel | None = None
    pause: Cancel | None = None
    warn: Callable[[str], None] = log_warning
    workers: str | OpenWorkers = ""

    def check(self) -> None:
        """Raise Cancelled if asked to stop."""
        self.meter(0).check()

    def is_pause_requested(self) -> bool:
        """Whether it is asked to pause."""
        return is_cancel_requested(self.pause)

    def meter(self, total: int) -> Meter:
        """A meter of ``total`` work, which reports and can be cancelled as this context says."""
        return Meter(total, self.progress, self.cancel)

    def split(self, weights: Mapping[str, float]) -> dict[str, Self]:
        """A context for each of several parts in their order; together they are one fraction, shared by ``weights``."""
        phases = Phases(weights, self.progress)
        return {name: replace(self, progress=phases.callback(name)) for name in weights}

    def with_title(self, words: str) -> Self:
        """The same; what it reports begins with ``words``, such as the number of one of several."""

        def report(inner: Progress) -> None:
            assert self.progress is not None
            self.progress(replace(inner, phase=f"{words}: {inner.phase}"))

        return self if self.progress is None else replace(self, progress=report)

    def with_phase(self, words: str) -> Self:
        """The same; what it reports is ``words``, such as the number of one of many, with its phase as the detail."""

        def report(inner: Progress) -> None:
            assert self.progress is not None
            self.progress(replace(inner, phase=words, detail=inner.phase))

        return self if self.progress is None else replace(self, progress=report)

    def without_progress(self) -> Self:
        """The same without reports, for what is counted by its caller."""
        return replace(self, progress=None)

    def without_workers(self) -> Self:
        """The same without workers, for what this process computes itself."""
        return replace(self, workers="")

    def on_device(self, device: object) -> Self:
        """The same on another device, a torch device or its name."""
        return replace(self, device=str(device))


QUIET = Context()  # reports nothing, and nobody can stop it
