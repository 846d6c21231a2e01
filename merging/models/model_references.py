"""References to models in recipes: a path, or a name in a models folder, in a benchmark or on the Hub."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, unquote

from merging.base.errors import CheckpointError, StoreError
from merging.base.settings import BUNDLED_TEAMS, models_folders, store_root

# "bundled:fashion" is an expert of the bundled benchmark, "bundled:gentle/fashion" one of its second team.
BUNDLED_PREFIX = "bundled:"
BUNDLED_PREFIXES = (*(f"{BUNDLED_PREFIX}{team}/" for team in BUNDLED_TEAMS if team), BUNDLED_PREFIX)
MODELS_PREFIX = "models:"  # "models:clip/cars.pt" is cars.pt in the folder called clip of $MERGESCOPE_MODELS
OWN_PREFIX = "own:"  # "own:mine/models/cars.safetensors" is in the user's benchmark called mine
BENCHMARKS = "benchmarks"  # the folder of a store that holds the user's benchmarks
NAMED = (BUNDLED_PREFIX, MODELS_PREFIX, OWN_PREFIX)  # references that do not depend on the current folder
HUB_PREFIX = "hf-hub:"  # a model on huggingface.co, by organization/name
PRETRAINED_TAG = re.compile(
    r"ViT-[\w-]{1,60}/[\w-]{1,60}"
)  # open_clip's model/tag; it counts only if no such file exists
MODEL_SUFFIXES = (".safetensors", ".npz", ".json")  # of a benchmark's models: whole, changes, a reference
PRETRAINED = "pretrained"  # the key of the pretrained model among the inputs of a run
EXPERTS = "experts/"  # the prefix of the experts' keys
# The path of a snapshot in the Hub's cache names its repository and revision.
SNAPSHOT_PATH = re.compile(r"(?:^|[\\/])models--([\w.-]+?)--([\w.-]+)[\\/]snapshots[\\/](\w+)")
HUB_REFERENCE = re.compile(rf"{HUB_PREFIX}([\w.-]{{1,96}}/[\w.-]{{1,96}})(?:@\w[\w./-]{{0,119}})?")
# Patterns of paths that name a user or a machine: a home folder, or a share of a machine on the network.
HOME_FOLDER = r"(?:[\w-]+:)?(?:~|[\\/](?:.*[\\/])?(?:home|Users)[\\/]+)"
MODEL_FILE = r"[^\\/]*\.(?:safetensors|pth?|bin|ckpt|pkl)"  # a model file directly below /home names no user
NETWORK_SHARE = r"(?:file://|\\\\)[^\\/]+(?:[\\/]+[^\\/]+)?"
PERSONAL_PATH = re.compile(rf"{HOME_FOLDER}(?!{MODEL_FILE}$)[^\\/]*|{NETWORK_SHARE}", re.IGNORECASE | re.DOTALL)
DRIVE_PREFIX = re.compile(r"^(?:[A-Z]|file):", re.IGNORECASE)
PRIVATE_NAME = "model"  # the name of a checkpoint whose path has no part that may be shown


def expert_key(name: str) -> str:
    """The key of an expert among the inputs of a run."""
    return f"{EXPERTS}{name}"


def strip_folders(reference: str) -> str:
    """A reference without the parts that reveal the machine or its user.

    Bundled names, names on the Hub and open_clip's tags are unchanged. Paths of snapshots in the Hub's cache become
    names on the Hub. Other paths and file URLs are cut to their last part, unless that names a home folder or a
    machine.
    """
    if _parse_hub_name(reference) or PRETRAINED_TAG.fullmatch(reference):
        return reference
    path = (unquote(reference) if reference.casefold().startswith("file:") else reference).rstrip("\\/")
    if snapshot := SNAPSHOT_PATH.search(path):
        return f"{HUB_PREFIX}{snapshot[1]}/{snapshot[2]}@{snapshot[3]}"
    if PERSONAL_PATH.fullmatch(path):
        return PRIVATE_NAME
    prefix = next((known for known in BUNDLED_PREFIXES if path.startswith(known)), "")
    last_part = DRIVE_PREFIX.sub("", re.split(r"[\\/]", path.removeprefix(prefix))[-1])
    return prefix + last_part if last_part else PRIVATE_NAME


def _parse_hub_name(reference: str) -> str:
    """The repository in a reference like hf-hub:organization/model@revision; empty for other references."""
    name = HUB_REFERENCE.fullmatch(reference)
    return name[1] if name and ".." not in reference else ""


def hub_id_of(reference: str) -> str:
    """The repository of a Hub reference, or of a snapshot's path in the Hub's cache; empty for other references."""
    if name := _parse_hub_name(reference):
        return name
    snapshot = SNAPSHOT_PATH.search(reference)
    return f"{snapshot[1]}/{snapshot[2]}" if snapshot else ""


def checkpoint_labels(pretrained: str, experts: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Names of a recipe's checkpoints for other readers: the pretrained model's, and {expert: name}.

    A name is the reference without folders. If two different files share a name, the expert's name is put before it.
    """
    references = {PRETRAINED: pretrained} | {expert_key(name): path for name, path in experts.items()}
    short_labels = {key: strip_folders(path) for key, path in references.items()}
    labels = {}
    for key, label in short_labels.items():
        same_label_references = {references[other] for other in short_labels if short_labels[other] == label}
        expert_name = quote(key.removeprefix(EXPERTS), safe="")
        labels[key] = label if len(same_label_references) == 1 else f"{expert_name}/{label}"
    return labels[PRETRAINED], {name: labels[expert_key(name)] for name in experts}


def locate(reference: str, base: Path | None = None) -> Path:
    """The path that a reference in a recipe means; relative paths start at ``base`` (default: the current folder).

    Raises:
        CheckpointError: the models folder or the bundled team is unknown, or the path leads out of its folder.
    """
    if reference.startswith(MODELS_PREFIX):
        return _locate_in_models_folder(reference.removeprefix(MODELS_PREFIX))
    if reference.startswith(OWN_PREFIX):
        return _resolve_inside(
            store_root() / BENCHMARKS, reference.removeprefix(OWN_PREFIX), "the benchmarks made here"
        )
    if reference.startswith(BUNDLED_PREFIX):
        team, _, name = reference.removeprefix(BUNDLED_PREFIX).rpartition("/")
        if team not in BUNDLED_TEAMS:
            raise CheckpointError(
                f"There is no bundled team {team[:80]!r}; there is: {', '.join(filter(None, BUNDLED_TEAMS))}."
            )
        if not (folder := BUNDLED_TEAMS[team] / "models").is_dir():
            raise CheckpointError(
                f"The bundled team {team!r} is not in the installed package, which would be too large with it; run "
                "Mergescope from a checkout of its repository."
            )
        return model_file(folder, name)
    path = Path(reference)
    if reference.startswith("~/"):
        path = path.expanduser()
    return path if path.is_absolute() else (base or Path.cwd()) / path


def model_file(folder: Path, name: str) -> Path:
    """The file of a model in a folder, whatever its format; if there is none, where a whole model would be."""
    paths = [folder / f"{name}{suffix}" for suffix in MODEL_SUFFIXES]
    return next((path for path in paths if path.is_file()), paths[0])


def bundled_reference(folder: Path, name: str) -> str:
    """The reference to a model of a bundled benchmark's folder; empty for other folders."""
    for team, team_folder in BUNDLED_TEAMS.items():
        if folder == team_folder:
            return f"{BUNDLED_PREFIX}{team}{'/' if team else ''}{name}"
    return ""


def _locate_in_models_folder(reference: str) -> Path:
    """The path of "folder/path", which must be in that models folder after following links, or of "folder"."""
    name, slash, relative = reference.partition("/")
    root = models_folders().get(name)
    if root is None:
        raise CheckpointError(f"There is no models folder {name[:80]!r} here; set MERGESCOPE_MODELS to where it is.")
    if not slash:
        return root
    return _resolve_inside(root, relative, f"the models folder {name[:80]!r}")


def _resolve_inside(root: Path, relative: str, title: str) -> Path:
    """``root``/``relative``, which must be in ``root`` after following links; messages call the root ``title``."""
    parts = relative.split("/")
    is_odd = any(part in {"", ".", ".."} for part in parts) or any(sign in relative for sign in "\\\0")
    try:
        is_inside = not is_odd and Path(os.path.realpath(root / relative)).is_relative_to(os.path.realpath(root))
    except (OSError, ValueError):
        is_inside = False
    if not is_inside:
        raise CheckpointError(f"{parts[-1][:80]!r} is outside of {title}; refused.")
    return root / relative


def reference_to(path: Path) -> str:
    """The reference to a file: a name if it is in a models folder or a benchmark of the user, else its path."""
    named = {f"{MODELS_PREFIX}{name}/": root for name, root in models_folders().items()}
    with contextlib.suppress(StoreError):  # without a home folder there is no store, and no benchmark in it
        named = {OWN_PREFIX: (store_root() / BENCHMARKS).resolve(), **named}
    for prefix, root in named.items():
        if path.is_relative_to(root):
            return f"{prefix}{path.relative_to(root).as_posix()}"
    return str(path)
