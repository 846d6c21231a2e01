"""The disk space of the store, by kind of content."""

from __future__ import annotations

from pathlib import Path

from merging.base.files.disk import list_files_below
from merging.study.runs.run_store import DRAFTS, LEARNING
from merging.tasks.quarantine import FOLDER

WEIGHTS, TABLES, OTHER = "merged weights", "tables and scores of runs", "everything else"
KINDS = {  # folder of the store -> kind of content
    "runs": TABLES,
    "by_benchmark": TABLES,  # scored on other benchmarks
    "measured": "measurements",
    "points": "points of sweeps",
    "features": "features of images, stored for later",
    "uploads": "uploads",
    "exports": "exports",
    "benchmarks": "benchmarks made from own data",
    "trials": "trials of measurements that lost their workers",
    LEARNING: "what paused runs have learned so far",
    DRAFTS: "drafts of reports and paintings",
    FOLDER: "damaged results, set aside",
}
MODEL = ".safetensors"


def measure_usage(root: Path) -> dict[str, int]:
    """{kind: bytes}, in a fixed order; merged weights are a kind of their own."""
    sizes = dict.fromkeys((WEIGHTS, *KINDS.values(), OTHER), 0)
    for folders, name, size in list_files_below(root, ()):
        kind = KINDS.get(folders[0], OTHER) if folders else OTHER
        sizes[WEIGHTS if kind == TABLES and name.endswith(MODEL) else kind] += size
    return sizes
