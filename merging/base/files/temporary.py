"""Names of temporary files and folders. A name identifies the writing process, so that leftovers can be recognized."""

from __future__ import annotations

import contextlib
import re
import time
import uuid
from pathlib import Path

from merging.base.files.processes import PROCESS_PATTERN, ProcessId, this_process

NEW_KIND, OLD_KIND = "tmp", "old"  # an entry that is being written or deleted; an old entry that is being replaced
ABANDONED_SECONDS = 86400.0  # seconds without a change after which a writer on another computer counts as dead: a day
TEMPORARY_NAME = re.compile(rf"(?:\..*)?(?P<kind>{NEW_KIND}|{OLD_KIND})-[0-9a-f]{{32}}-(?P<writer>{PROCESS_PATTERN})")


def temporary_name(kind: str = NEW_KIND) -> str:
    """A new name that no other process uses."""
    return f"{kind}-{uuid.uuid4().hex}-{this_process().text}"


def is_temporary(name: str) -> bool:
    """Whether a file or folder with this name is a temporary one of this program."""
    return TEMPORARY_NAME.fullmatch(name) is not None


def leftover_kind(path: Path) -> str:
    """``NEW_KIND`` or ``OLD_KIND`` if a dead process left this temporary file or folder behind, else empty."""
    match = TEMPORARY_NAME.fullmatch(path.name)
    if match is None:
        return ""
    writer = ProcessId.parse(match["writer"])
    if writer is None:
        return ""
    is_leftover = not writer.is_alive() if writer.is_local else _is_unchanged(path)
    return match["kind"] if is_leftover else ""


def _is_unchanged(path: Path) -> bool:
    """Whether nothing at or below the path has changed for ``ABANDONED_SECONDS`` seconds."""
    times = [0.0]
    for inner in (path, *path.rglob("*")):
        with contextlib.suppress(OSError):
            times.append(inner.stat().st_mtime)
    return time.time() - max(times) > ABANDONED_SECONDS
