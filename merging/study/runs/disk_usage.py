"""The disk space that the store takes, by kind of content."""

from __future__ import annotations

from pathlib import Path

from merging.base.files.disk import list_files_below
from merging.study.runs.run_store import DRAFTS, LEARNING
from merging.tasks.quarantine import FOLDER

WEIGHTS, TABLES, OTHER = "merged weights", "tables and scores of runs", "everything else"
KINDS = {  # folder of the store -> kind of content
    "runs": TABLES,
    "apart": TABLES,  # scored on other benchmarks
    "measured": "measurements",
    "points": "points of sweeps",
    "features": "features of images, kept for later",
    "uploads": "uploads",
    "exports": "exports",
    "benchmarks": "benchmarks made from own data",
    "trials": "trials of measurements whose workers were gone",
    LEARNING: "what paused runs have learned so far",
    DRAFTS: "drafts of reports and paintings",
    FOLDER: "damaged results, set aside",
}
MODEL = ".safetensors"


def measure_usage(root: Path) -> dict[str, int]:
    """{kind: bytes}, in a fixed order; merged weights are counted apart from the rest of their runs."""
    sizes = dict.fromkeys((WEIGHTS, *KINDS.values(), OTHER), 0)
    for place, name, size in list_files_below(root, ()):
        kind = KINDS.get(place[0], OTHER) if place else OTHER
        sizes[WEIGHTS if kind == TABLES and name.endswith(MODEL) else kind] += size
    return sizes
