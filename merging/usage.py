"""What the store takes on the disk, by what it is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

WEIGHTS, TABLES, OTHER = "merged weights", "tables and scores of runs", "everything else"
KINDS = {  # folder of the store -> what it is
    "runs": TABLES,
    "apart": TABLES,  # scored on other benchmarks
    "measured": "measurements",
    "points": "points of sweeps",
    "uploads": "uploads",
    "exports": "exports",
    "benchmarks": "benchmarks made from own data",
}
MODEL = ".safetensors"


def usage(root: Path) -> dict[str, int]:
    """{what: bytes}, in a fixed order; merged weights are told apart from the rest of their runs."""
    found = dict.fromkeys((WEIGHTS, *KINDS.values(), OTHER), 0)
    for place, name, size in files_below(root, ()):
        what = KINDS.get(place[0], OTHER) if place else OTHER
        found[WEIGHTS if what == TABLES and name.endswith(MODEL) else what] += size
    return found


def folder_size(folder: Path) -> int:
    """Bytes of all files in a folder."""
    return sum(size for *_, size in files_below(folder, ()))


def files_below(folder: Path, place: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str, int]]:
    """Folders on the way, name and size of every file; what vanishes meanwhile is left out."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield from files_below(Path(entry.path), (*place, entry.name))
                else:
                    yield place, entry.name, entry.stat(follow_symlinks=False).st_size
    except OSError:
        return
