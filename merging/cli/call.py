"""What belongs to every call of the command line, whatever the command."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Event
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass
class Call:
    """How a call is stopped, whether it prints JSON, and the file that its progress goes to (None: a bar on stderr).

    What is learned pauses as soon as there is a ``pause_file``.
    """

    stop: Event = field(default_factory=Event)
    json: bool = False
    events: Path | None = None
    pause_file: Path | None = None

    def halts(self) -> bool:
        """Whether it is asked to stop or to pause."""
        return self.stop.is_set() or self.pauses()

    def pauses(self) -> bool:
        """Whether it is asked to pause."""
        return self.pause_file is not None and self.pause_file.exists()
