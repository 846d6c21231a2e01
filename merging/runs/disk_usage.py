"""What the store takes on the disk, by what it is."""

from __future__ import annotations

from pathlib import Path

from merging.files.disk import files_below

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
