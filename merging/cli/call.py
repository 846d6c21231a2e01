"""What belongs to every call of the command line, whatever the command."""

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
    """How a call is stopped, whether it prints JSON, and the file that its progress goes to (None: a bar on stderr).

    What can go on later pauses as soon as there is a ``pause_file``. ``workers`` are named by a text, see Context.
    """

    stop: Event = field(default_factory=Event)
    json: bool = False
    events: Path | None = None
    pause_file: Path | None = None
    workers: str = ""

    def is_stop_requested(self) -> bool:
        """Whether it is asked to stop or to pause."""
        return self.stop.is_set() or self.is_pause_requested()

    def is_pause_requested(self) -> bool:
        """Whether it is asked to pause."""
        return self.pause_file is not None and self.pause_file.exists()

    def context(
        self, progress: ProgressCallback | None, device: str = "auto", warn: Callable[[str], None] = log_warning
    ) -> Context:
        """The context of what it computes."""
        return Context(
            device, progress, cancel=self.stop, pause=self.is_pause_requested, warn=warn, workers=self.workers
        )
