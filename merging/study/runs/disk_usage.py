"""The disk space of the store, by kind of content."""

from __future__ import annotations

from pathlib import Path

from merging.base.files.disk import list_files_below
from merging.study.runs.run_store import DRAFTS_FOLDER, LEARNING_FOLDER
from merging.tasks.quarantine import FOLDER as QUARANTINE_FOLDER

WEIGHTS, TABLES, OTHER = "merged weights", "tables and scores of runs", "everything else"
KIND_OF_FOLDER = {  # folder of the store -> kind of content
    "runs": TABLES,
    "by_benchmark": TABLES,  # scored on other benchmarks
    "measured": "measurements",
    "points": "points of sweeps",
    "subsets": "measured subsets of teams",
    "features": "features of images, stored for later",
    "uploads": "uploads",
    "exports": "exports",
    "benchmarks": "benchmarks made from own data",
    "packs": "opened packs",
    "opened": "opened packs",
    "desks": "files of Mix, for browsers",
    "trials": "trials of measurements that lost their workers",
    LEARNING_FOLDER: "what paused runs have learned so far",
    DRAFTS_FOLDER: "drafts of reports and paintings",
    QUARANTINE_FOLDER: "damaged results, set aside",
}
MODEL_SUFFIX = ".safetensors"


def measure_usage(root: Path) -> dict[str, int]:
    """{kind: bytes}, in a fixed order; merged weights are a kind of their own."""
    sizes = dict.fromkeys((WEIGHTS, *KIND_OF_FOLDER.values(), OTHER), 0)
    for folders, name, size in list_files_below(root, ()):
        kind = KIND_OF_FOLDER.get(folders[0], OTHER) if folders else OTHER
        sizes[WEIGHTS if kind == TABLES and name.endswith(MODEL_SUFFIX) else kind] += size
    return sizes
