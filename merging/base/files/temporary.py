"""Names of temporary files and folders, which hold the process that writes them, and what dead processes left."""

from __future__ import annotations

import contextlib
import re
import time
import uuid
from pathlib import Path

from merging.base.files.processes import TEXT, ProcessId, this_process

NEW, OLD = "tmp", "old"  # what is being written or deleted; what is kept until its successor is in its place
ABANDONED = 86400.0  # seconds without a change after which a writer that cannot be seen from here counts as dead: a day
NAME = re.compile(rf"(?:\..*)?(?P<kind>{NEW}|{OLD})-[0-9a-f]{{32}}-(?P<writer>{TEXT})")


def temporary_name(kind: str = NEW) -> str:
    """A new name that this process alone uses."""
    return f"{kind}-{uuid.uuid4().hex}-{this_process().text}"


def is_temporary(name: str) -> bool:
    """Whether a file or folder of this name is a temporary one of this program."""
    return NAME.fullmatch(name) is not None


def temporary_kind(path: Path) -> str:
    """``NEW`` or ``OLD`` if a dead process left this temporary file or folder behind; empty for everything else."""
    match = NAME.fullmatch(path.name)
    if match is None:
        return ""
    writer = ProcessId.parse(match["writer"])
    if writer is None:
        return ""
    left = not writer.is_alive() if writer.is_local else _is_unchanged(path)
    return match["kind"] if left else ""


def _is_unchanged(path: Path) -> bool:
    """Whether nothing in it has changed for ``ABANDONED`` seconds."""
    times = [0.0]
    for inner in (path, *path.rglob("*")):
        with contextlib.suppress(OSError):
            times.append(inner.stat().st_mtime)
    return time.time() - max(times) > ABANDONED
