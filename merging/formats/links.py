"""Links: one that leads out of its folder is not followed, so that a listed folder shows nothing but what is in it."""

from __future__ import annotations

import os
from pathlib import Path

from merging.errors import CheckpointError, printable


def inside(path: Path) -> Path:
    """The file that a path means, links followed.

    Only inside of the folder, and from a snapshot of the Hugging Face cache to the blobs beside it.

    Raises:
        CheckpointError: the path is a link that leads elsewhere; nothing is said of what is there.
    """
    try:
        if not path.is_symlink():
            return path
        target, folder = Path(os.path.realpath(path)), Path(os.path.realpath(path.parent))
    except (OSError, ValueError):  # what cannot be looked at cannot be opened, which says why
        return path
    if not target.is_relative_to(folder) and not _in_hub_cache(target, folder):
        raise CheckpointError(
            f"{printable(path.name, 80)} is a link that leads outside of its folder; give the file itself."
        )
    return target


def _in_hub_cache(target: Path, folder: Path) -> bool:
    """Whether a snapshot's file leads to a blob of the same repository."""
    repository = target.parent.parent
    at_home = folder.is_relative_to(repository / "snapshots") and repository.name.startswith(("models--", "datasets--"))
    return target.parent.name == "blobs" and at_home
