"""Models by their name on the Hub: read from its cache, or fetched if there is a network.

`hf-hub:organization/name`, optionally with `@revision`, or a pretrained tag of open_clip such as `ViT-B-32/openai`.
Only weights and configurations are fetched, and they are read like every other file; no code of a repository is run.
$MERGESCOPE_HUB=cached forbids downloads, and off also forbids the cache. A server for other people should set one of
them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from merging.base.errors import CheckpointError, HubError
from merging.base.progress import current_watchers
from merging.base.text import did_you_mean, printable
from merging.models.formats import configs
from merging.models.formats.configs import ADAPTER_WEIGHTS
from merging.models.hub.blob_cache import find_snapshot
from merging.models.hub.client import OFF, blocked_by_setting, host, require_hub_access
from merging.models.hub.fetch import fetch as fetch_files
from merging.models.hub.repository import Repository
from merging.models.hub.repository_facts import fetch_facts
from merging.models.model_references import HUB_PREFIX
from merging.tasks.context import QUIET, Context

REPOSITORY_NAME = re.compile(r"[\w.-]{1,96}/[\w.-]{1,96}")
SHARD_NAME = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")
INDEX_FILE = "model.safetensors.index.json"
CONFIGS = (configs.TRANSFORMERS, configs.OPEN_CLIP, configs.ADAPTER_CONFIG, "preprocessor_config.json")
# open_clip's files come first: in some repositories model.safetensors is an image model of another library
WEIGHTS = (
    "open_clip_model.safetensors", "model.safetensors", INDEX_FILE,
    "open_clip_pytorch_model.bin", "pytorch_model.bin",
)  # fmt: skip


def fetch(reference: str, context: Context = QUIET) -> Path:
    """The file or folder of a reference, fetched if it is not in the cache.

    Raises:
        CheckpointError: a setting forbids the Hub, a package is missing, or there is no network or no such model.
        Cancelled: the user cancelled; the text states how much is cached for the next download.
    """
    progress, cancel = current_watchers()
    try:
        if blocked_by_setting() == OFF:  # not even the cache may be read; the next line raises
            require_hub_access(reference)
        repository = _parse_reference(reference)
        if cached_path := _find_cached(repository):
            return cached_path
        require_hub_access(reference)
        watched_context = replace(context, progress=context.progress or progress, cancel=context.cancel or cancel)
        return _fetch_model(repository, watched_context)
    except HubError as error:
        raise CheckpointError(str(error)) from None


def _parse_reference(reference: str) -> Repository:
    """The repository and revision in a reference."""
    if not reference.startswith(HUB_PREFIX):
        return Repository("model", _find_repository_of_tag(reference))
    name, _, revision = reference.removeprefix(HUB_PREFIX).partition("@")
    try:
        if REPOSITORY_NAME.fullmatch(name):
            return Repository("model", name, revision or None)
    except HubError:
        pass
    raise CheckpointError(f"{printable(reference)}: write {HUB_PREFIX}organization/name, or add @revision.")


def _find_repository_of_tag(reference: str) -> str:
    """The repository of one of open_clip's pretrained tags."""
    model, _, tag = reference.partition("/")
    from merging.base.open_clip_import import prepare_torchvision

    prepare_torchvision()
    try:
        from open_clip.pretrained import get_pretrained_cfg, list_pretrained_tags_by_model
    except ImportError:
        raise CheckpointError(
            f"There is no file {reference}, and for open_clip's pretrained models open_clip is needed: "
            "`pip install open_clip_torch`."
        ) from None
    config = get_pretrained_cfg(model, tag)
    if not config:
        tags = list_pretrained_tags_by_model(model)
        tag_list = f" Its tags: {', '.join(tags)}." if tags else ""
        raise CheckpointError(
            f"There is no file {reference}, and open_clip has no such pretrained model.{did_you_mean(tag, tags)}"
            f"{tag_list}"
        )
    repository = str(config.get("hf_hub", "")).strip("/")
    if not REPOSITORY_NAME.fullmatch(repository):
        raise CheckpointError(f"{reference} is not on the Hub. Download it with open_clip and give its path.")
    return repository


def needed_files(names: Iterable[str]) -> list[str]:
    """The files of a repository that a checkpoint needs, weights first; empty if it has no readable weights."""
    available = set(names)
    shards = sorted(name for name in available if SHARD_NAME.fullmatch(name))
    if configs.ADAPTER_CONFIG in available:
        weights = [name for name in ADAPTER_WEIGHTS if name in available][:1]
    else:
        weights = [name for name in WEIGHTS if name in available][:1]
        weights += shards if weights == [INDEX_FILE] else []
    return weights + [name for name in CONFIGS if name in available] if weights else []


def _path_to_open(folder: Path, names: list[str]) -> Path:
    """The path to open: an adapter's folder, or the file of weights."""
    return folder if configs.ADAPTER_CONFIG in names else folder / names[0]


def _find_cached(repository: Repository) -> Path | None:
    """The path to open of a model in the cache; None if the model is not complete."""
    if (folder := find_snapshot(repository)) is None:
        return None
    names = needed_files(path.name for path in folder.iterdir())
    complete = bool(names) and (names[0] != INDEX_FILE or _has_all_shards(folder / INDEX_FILE))
    return _path_to_open(folder, names) if complete else None


def _has_all_shards(index: Path) -> bool:
    """Whether all shards that an index lists are in its folder."""
    shards = (configs.read_json(index.resolve()) or {}).get("weight_map", {})
    return isinstance(shards, dict) and all((index.parent / Path(str(name)).name).exists() for name in shards.values())


def _fetch_model(repository: Repository, context: Context) -> Path:
    """Fetch a model's files; return the path to open."""
    facts = fetch_facts(repository, context)
    names = needed_files(file.name for file in facts.files)
    if not names:
        raise CheckpointError(
            f"{repository.name} on {host()} has no weights that can be read ({', '.join(WEIGHTS[:2])})."
        )
    files = [file for file in facts.files if file.name in names]
    folder = fetch_files(repository, files, facts=facts, context=context)
    return _path_to_open(folder, names)
