"""The settings of a call of the command line that do not depend on the command."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Event
from typing import TYPE_CHECKING

from merging.tasks.context import Context, log_warning

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from merging.base.progress import ProgressCallback


@dataclass
class Call:
    """A call: its stop event, whether it prints JSON, and the file for its progress (None: a bar on stderr).

    A command that can continue later pauses as soon as its ``pause_file`` exists. ``workers`` names the workers
    that compute; empty: this process.
    """

    stop: Event = field(default_factory=Event)
    json: bool = False
    events: Path | None = None
    pause_file: Path | None = None
    workers: str = ""

    def is_stop_requested(self) -> bool:
        """Whether the call is asked to stop or to pause."""
        return self.stop.is_set() or self.is_pause_requested()

    def is_pause_requested(self) -> bool:
        """Whether the call is asked to pause."""
        return self.pause_file is not None and self.pause_file.exists()

    def context(
        self, progress: ProgressCallback | None, device: str = "auto", warn: Callable[[str], None] = log_warning
    ) -> Context:
        """The context of the call's computation."""
        return Context(
            device, progress, cancel=self.stop, pause=self.is_pause_requested, warn=warn, workers=self.workers
        )
