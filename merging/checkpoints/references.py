"""What recipes call a model: a path, a name in a listed folder, the bundled benchmark or the Hub; and back."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, unquote

from merging.errors import CheckpointError
from merging.settings import BUNDLED, models_folders, store_root

BUNDLED_PREFIX = "bundled:"  # in a recipe, "bundled:fashion" is the bundled benchmark's expert
MODELS_PREFIX = "models:"  # "models:clip/cars.pt" is cars.pt in the folder called clip of $MERGESCOPE_MODELS
OWN_PREFIX = "own:"  # "own:mine/models/cars.safetensors" is in the benchmark called mine that was made in the app
BENCHMARKS = "benchmarks"  # the folder of a store that holds those
NAMED = (BUNDLED_PREFIX, MODELS_PREFIX, OWN_PREFIX)  # references that mean the same wherever they are read from
HUB_PREFIX = "hf-hub:"  # a model on huggingface.co, by organization/name
PRETRAINED_TAG = re.compile(r"ViT-[\w-]{1,60}/[\w-]{1,60}")  # open_clip's model/tag, if there is no such file
PRETRAINED = "pretrained"
# A downloaded snapshot in the Hub's cache says which repository it is of.
SNAPSHOT = re.compile(r"(?:^|[\\/])models--([\w.-]+?)--([\w.-]+)[\\/]snapshots[\\/](\w+)")
HUB_REFERENCE = re.compile(rf"{HUB_PREFIX}([\w.-]{{1,96}}/[\w.-]{{1,96}})(?:@\w[\w./-]{{0,119}})?")
# Folders whose own name is that of a user or of a machine: a home, a machine on the network and one of its shares.
HOMES = r"(?:[\w-]+:)?(?:~|[\\/](?:.*[\\/])?(?:home|Users)[\\/]+)"
MODEL_FILE = r"[^\\/]*\.(?:safetensors|pth?|bin|ckpt|pkl)"  # which may lie beside such folders
SHARE = r"(?:file://|\\\\)[^\\/]+(?:[\\/]+[^\\/]+)?"
PERSONAL = re.compile(rf"{HOMES}(?!{MODEL_FILE}$)[^\\/]*|{SHARE}", re.IGNORECASE | re.DOTALL)
DRIVE = re.compile(r"^(?:[A-Z]|file):", re.IGNORECASE)
UNNAMED = "model"  # what a checkpoint is called if the last part of its path must not be told


def without_folders(reference: str) -> str:
    """A reference without what it tells of the machine and its user.

    Bundled names, names on the Hub and open_clip's tags stay. Snapshots in the Hub's cache become names on the Hub. Of
    other paths and of file URLs the last part stays, unless it is the name of a home folder or of a machine.
    """
    if _hub_name(reference) or PRETRAINED_TAG.fullmatch(reference):
        return reference
    path = (unquote(reference) if reference.casefold().startswith("file:") else reference).rstrip("\\/")
    if snapshot := SNAPSHOT.search(path):
        return f"{HUB_PREFIX}{snapshot[1]}/{snapshot[2]}@{snapshot[3]}"
    if PERSONAL.fullmatch(path):
        return UNNAMED
    prefix = BUNDLED_PREFIX if path.startswith(BUNDLED_PREFIX) else ""
    last = DRIVE.sub("", re.split(r"[\\/]", path.removeprefix(prefix))[-1])
    return prefix + last if last else UNNAMED


def _hub_name(reference: str) -> str:
    """The repository that a reference like hf-hub:organization/model@revision names; empty if it is of another kind."""
    name = HUB_REFERENCE.fullmatch(reference)
    return name[1] if name and ".." not in reference else ""


def hub_id_of(reference: str) -> str:
    """The repository that a reference names, or of which a path in the Hub's cache is a snapshot; else empty."""
    if name := _hub_name(reference):
        return name
    snapshot = SNAPSHOT.search(reference)
    return f"{snapshot[1]}/{snapshot[2]}" if snapshot else ""


def checkpoint_labels(pretrained: str, experts: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """What the checkpoints of a recipe are called where others read it: the pretrained model, the experts by name.

    That is their references without folders; where two different files share a name, under the experts' names.
    """
    references = {PRETRAINED: pretrained} | {f"experts/{name}": path for name, path in experts.items()}
    short = {key: without_folders(path) for key, path in references.items()}
    named = {}
    for key, label in short.items():
        others = {references[other] for other in short if short[other] == label}
        owner = quote(key.rpartition("experts/")[2], safe="")
        named[key] = label if len(others) == 1 else f"{owner}/{label}"
    return named[PRETRAINED], {name: named[f"experts/{name}"] for name in experts}


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
