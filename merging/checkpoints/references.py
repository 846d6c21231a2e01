"""What recipes call a model: a path, a name in a listed folder, the bundled benchmark or the Hub; and back."""

from __future__ import annotations

import os
import re
from pathlib import Path

from merging.errors import CheckpointError
from merging.settings import BUNDLED, models_folders, store_root

# A downloaded snapshot in the Hub's cache says which repository it is of.
SNAPSHOT = re.compile(r"(?:^|[\\/])models--([\w.-]+?)--([\w.-]+)[\\/]snapshots[\\/](\w+)")
BUNDLED_PREFIX = "bundled:"  # in a recipe, "bundled:fashion" is the bundled benchmark's expert
MODELS_PREFIX = "models:"  # "models:clip/cars.pt" is cars.pt in the folder called clip of $MERGESCOPE_MODELS
OWN_PREFIX = "own:"  # "own:mine/models/cars.safetensors" is in the benchmark called mine that was made in the app
BENCHMARKS = "benchmarks"  # the folder of a store that holds those
NAMED = (BUNDLED_PREFIX, MODELS_PREFIX, OWN_PREFIX)  # references that mean the same wherever they are read from
HUB_PREFIX = "hf-hub:"  # a model on huggingface.co, by organization/name
PRETRAINED_TAG = re.compile(r"ViT-[\w-]{1,60}/[\w-]{1,60}")  # open_clip's model/tag, if there is no such file


def without_folders(reference: str) -> str:
    """A reference without what it tells of the machine: bundled and Hub names stay, of paths the last part."""
    if reference.startswith((BUNDLED_PREFIX, HUB_PREFIX)) or PRETRAINED_TAG.fullmatch(reference):
        return reference
    if found := SNAPSHOT.search(reference):
        return f"{HUB_PREFIX}{found[1]}/{found[2]}@{found[3]}"
    return re.split(r"[\\/]", reference.rstrip("\\/"))[-1] or "model"


def hub_id_of(reference: str) -> str:
    """The repository that a reference names, or of which a path in the Hub's cache is a snapshot; else empty."""
    if reference.startswith(HUB_PREFIX):
        return reference.removeprefix(HUB_PREFIX).partition("@")[0]
    found = SNAPSHOT.search(reference)
    return f"{found[1]}/{found[2]}" if found else ""


def locate(reference: str, base: Path | None = None) -> Path:
    """The file that a reference in a recipe means; relative paths count from ``base`` (default: here).

    Raises:
        CheckpointError: a models folder that is not known here, or a path that leads out of it.
    """
    if reference.startswith(MODELS_PREFIX):
        return _in_models_folder(reference.removeprefix(MODELS_PREFIX))
    if reference.startswith(OWN_PREFIX):
        return _inside(store_root() / BENCHMARKS, reference.removeprefix(OWN_PREFIX), "the benchmarks made here")
    if reference.startswith(BUNDLED_PREFIX):
        name = reference.removeprefix(BUNDLED_PREFIX)
        return BUNDLED / "models" / f"{Path(name).name}.safetensors"
    path = Path(reference)
    if reference.startswith("~/"):
        path = path.expanduser()
    return path if path.is_absolute() else (base or Path.cwd()) / path


def _in_models_folder(place: str) -> Path:
    """The path that "folder/rest" means, which must lie in that folder with all links followed; "folder" is itself."""
    name, within, rest = place.partition("/")
    root = models_folders().get(name)
    if root is None:
        raise CheckpointError(f"There is no models folder {name[:80]!r} here; set MERGESCOPE_MODELS to where it is.")
    if not within:
        return root
    return _inside(root, rest, f"the models folder {name[:80]!r}")


def _inside(root: Path, rest: str, called: str) -> Path:
    """A path in a folder, in which it must lie with all links followed."""
    parts = rest.split("/")
    odd = any(part in {"", ".", ".."} for part in parts) or any(sign in rest for sign in "\\\0")
    try:
        inside = not odd and Path(os.path.realpath(root / rest)).is_relative_to(os.path.realpath(root))
    except (OSError, ValueError):
        inside = False
    if not inside:
        raise CheckpointError(f"{parts[-1][:80]!r} lies outside of {called}; refused.")
    return root / rest


def reference_to(path: Path) -> str:
    """What recipes call a file: by name where it lies in a listed folder or in a benchmark made here, else its path."""
    listed = {f"{MODELS_PREFIX}{name}/": root for name, root in models_folders().items()}
    for prefix, root in {OWN_PREFIX: (store_root() / BENCHMARKS).resolve(), **listed}.items():
        if path.is_relative_to(root):
            return f"{prefix}{path.relative_to(root).as_posix()}"
    return str(path)


def is_remote(reference: str, base: Path | None = None) -> bool:
    """Whether a reference means a model on huggingface.co: `hf-hub:organization/name`, or open_clip's `model/tag`."""
    if reference.startswith(HUB_PREFIX):
        return True
    return bool(PRETRAINED_TAG.fullmatch(reference)) and not locate(reference, base).exists()
