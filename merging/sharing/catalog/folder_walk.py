"""A walk through a folder with limits on depth and entries, which does not follow links to folders."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path

MAX_LEVELS, MAX_ENTRIES = 4, 5000  # levels below the first folder, entries in all folders

Entries = list[os.DirEntry[str]]
Enter = Callable[[Path, str, Entries], Iterable[Path]]  # folder, its listed path, its entries -> folders to enter


def resolve_typed_path(text: str) -> Path | None:
    """The path that a user typed, with links followed; None if it cannot be a path, or may not be read."""
    try:
        path = Path(text).expanduser().resolve()
        path.exists()
    except (OSError, ValueError, RuntimeError):  # a NUL, a loop of links, the home of an unknown user
        return None
    return path


def walk_folders(root: Path, name: str, enter: Enter) -> list[str]:
    """Enter a folder and those that ``enter`` returns, level by level; returns sentences on what was skipped.

    A listed path begins with ``name``, the name of the root.
    """
    notes: list[str] = []
    queue, remaining_entries = deque([(root, name, 0)]), MAX_ENTRIES
    while queue:
        folder, listed_path, depth = queue.popleft()
        try:
            entries = list_visible_entries(folder, remaining_entries + 1)
        except OSError as error:
            notes.append(f"{listed_path} cannot be read ({error.strerror}).")
            continue
        if len(entries) > remaining_entries:
            notes.append(f"{listed_path} is too large: only the first {MAX_ENTRIES:,} files and folders were read.")
            queue.clear()
        entries, remaining_entries = entries[:remaining_entries], remaining_entries - len(entries)
        subfolders = list(enter(folder, listed_path, entries))
        if depth < MAX_LEVELS:
            queue.extend(
                (path, f"{listed_path}/{path.name}", depth + 1) for path in subfolders if remaining_entries > 0
            )
        elif subfolders:
            notes.append(f"{listed_path} has subfolders that are too deep; they were not read.")
    return notes


def list_visible_entries(folder: Path, max_count: int) -> Entries:
    """The first visible entries of a folder, by name. Raises OSError if it cannot be read."""
    with os.scandir(folder) as entries:
        visible = (entry for entry in entries if not entry.name.startswith("."))
        return sorted(islice(visible, max_count), key=lambda entry: entry.name)


def is_folder(entry: os.DirEntry[str], follow: bool = False) -> bool:
    """Whether an entry is a folder, or, with ``follow``, a link to one."""
    try:
        return entry.is_dir(follow_symlinks=follow)
    except OSError:  # a loop of links
        return False
