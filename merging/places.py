"""Where things are: the bundled benchmark, the library of precomputed runs, this user's own runs."""

from __future__ import annotations

import os
import re
from pathlib import Path

BUNDLED = Path(__file__).resolve().parent.parent / "sample_data"
LIBRARY = BUNDLED / "runs"
BUNDLED_PREFIX = "bundled:"  # in a recipe, "bundled:fashion" is the bundled benchmark's expert
HUB_PREFIX = "hf-hub:"  # a model on huggingface.co, by organization/name
PRETRAINED_TAG = re.compile(r"ViT-[\w-]{1,60}/[\w-]{1,60}")  # open_clip's model/tag, if there is no such file


def benchmark_folder() -> Path:
    """The benchmark that is used where none is named: $MERGESCOPE_BENCHMARK, else the bundled one."""
    chosen = os.environ.get("MERGESCOPE_BENCHMARK")
    return Path(chosen).resolve() if chosen else BUNDLED


def store_root() -> Path:
    """This user's runs: $MERGESCOPE_STORE, else a folder in the user's cache directory."""
    if chosen := os.environ.get("MERGESCOPE_STORE"):
        return Path(chosen)
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "mergescope"


def locate(reference: str, base: Path | None = None) -> Path:
    """The file that a reference in a recipe means; relative paths count from ``base`` (default: here)."""
    if reference.startswith(BUNDLED_PREFIX):
        name = reference.removeprefix(BUNDLED_PREFIX)
        return BUNDLED / "models" / f"{Path(name).name}.safetensors"
    path = Path(reference)
    if reference.startswith("~/"):
        path = path.expanduser()
    return path if path.is_absolute() else (base or Path.cwd()) / path


def is_remote(reference: str, base: Path | None = None) -> bool:
    """Whether a reference means a model on huggingface.co: `hf-hub:organization/name`, or open_clip's `model/tag`."""
    if reference.startswith(HUB_PREFIX):
        return True
    return bool(PRETRAINED_TAG.fullmatch(reference)) and not locate(reference, base).exists()
