"""Models by their name on huggingface.co: read from the local cache, or downloaded if there is a network.

`hf-hub:organization/name`, optionally with `@revision`, or a pretrained tag of open_clip such as `ViT-B-32/openai`.
Only weights and configurations are taken, and they are read like every other file; no code of a repository is run.
$MERGESCOPE_HUB=cached forbids downloads, and off also forbids the cache: a server for others should set one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from merging.checkpoints.references import HUB_PREFIX
from merging.errors import CheckpointError, MergingError
from merging.files.disk import free_bytes
from merging.formats import configs
from merging.formats.configs import ADAPTERS
from merging.progress import Cancel, Meter, ProgressCallback
from merging.settings import HUB_SWITCH
from merging.text import did_you_mean, printable, size_text

OFF, CACHED = "off", "cached"
SITE = "huggingface.co"
TIMEOUT = 10.0  # seconds to wait for an answer
NAME = re.compile(r"[\w.-]{1,96}/[\w.-]{1,96}")
REVISION = re.compile(r"[\w./-]{1,120}")
SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")
CONFIGS = (configs.TRANSFORMERS, configs.OPEN_CLIP, configs.ADAPTER, "preprocessor_config.json")
# open_clip's come first: in some repositories model.safetensors is a bare image model of another library
WEIGHTS = (
    "open_clip_model.safetensors", "model.safetensors", "model.safetensors.index.json",
    "open_clip_pytorch_model.bin", "pytorch_model.bin",
)  # fmt: skip


def fetch(reference: str, progress: ProgressCallback | None = None, cancel: Cancel | None = None) -> Path:
    """The file or folder that a reference means, downloaded if it is not in the local cache.

    Raises:
        CheckpointError: the Hub is switched off, a package is missing, there is no network, or no such model.
        Cancelled: ``cancel`` asked to stop; a later download continues from there.
    """
    setting = os.environ.get(HUB_SWITCH, "on").casefold()
    if setting == OFF:
        raise _not_contacted(reference, setting)
    repository, revision = _repository(reference)
    try:
        import huggingface_hub
    except ImportError:
        raise CheckpointError(
            f"{printable(reference)} is on {SITE}: `pip install huggingface_hub`, or download it and give its path."
        ) from None
    if cached := _cached(huggingface_hub, repository, revision):
        return cached
    if setting == CACHED:
        raise _not_contacted(reference, setting)
    return _download(huggingface_hub, repository, revision, progress, cancel)


def _not_contacted(reference: str, setting: str) -> CheckpointError:
    reason = f"{printable(reference)} is on {SITE}, which is not contacted here ({HUB_SWITCH}={setting})"
    return CheckpointError(f"{reason}; download it and give its path.")


def _repository(reference: str) -> tuple[str, str | None]:
    """The repository and revision in a reference."""
    if not reference.startswith(HUB_PREFIX):
        return _repository_of_tag(reference), None
    name, _, revision = reference.removeprefix(HUB_PREFIX).partition("@")
    odd = not NAME.fullmatch(name) or (revision and not REVISION.fullmatch(revision)) or ".." in name + revision
    if odd:
        raise CheckpointError(f"{printable(reference)}: write {HUB_PREFIX}organization/name, or add @revision.")
    return name, revision or None


def _repository_of_tag(reference: str) -> str:
    """The repository of one of open_clip's pretrained tags."""
    model, _, tag = reference.partition("/")
    from merging.open_clip_import import prepare_torchvision

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
        listed = f" Its tags: {', '.join(tags)}." if tags else ""
        raise CheckpointError(
            f"There is no file {reference}, and open_clip has no such pretrained model.{did_you_mean(tag, tags)}"
            f"{listed}"
        )
    repository = str(config.get("hf_hub", "")).strip("/")
    if not NAME.fullmatch(repository):
        raise CheckpointError(f"{reference} is not on {SITE}. Download it with open_clip and give its path.")
    return repository


def needed_files(names: Iterable[str]) -> list[str]:
    """The files of a repository that are needed, the weights first; empty if no weights can be read."""
    available = set(names)
    shards = sorted(name for name in available if SHARD.fullmatch(name))
    if configs.ADAPTER in available:
        weights = [name for name in ADAPTERS if name in available][:1]
    else:
        weights = [name for name in WEIGHTS if name in available][:1]
        weights += shards if weights == ["model.safetensors.index.json"] else []
    return weights + [name for name in CONFIGS if name in available] if weights else []


def _path_to_open(folder: Path, names: list[str]) -> Path:
    """The path to open: an adapter's folder, or the file of weights."""
    return folder if configs.ADAPTER in names else folder / names[0]


def _cached(hub: Any, repository: str, revision: str | None) -> Path | None:
    """The model in the local cache, if it is complete there."""
    for name in (*ADAPTERS, *WEIGHTS):
        cached = hub.try_to_load_from_cache(repository, name, revision=revision)
        if isinstance(cached, str):
            folder = Path(cached).parent
            names = needed_files(path.name for path in folder.iterdir())
            index = "model.safetensors.index.json"
            if names[:1] == [name] and (name != index or _complete(folder / index)):
                return _path_to_open(folder, names)
    return None


def _complete(index: Path) -> bool:
    """Whether all shards in an index are in its folder."""
    shards = (configs.read_json(index.resolve()) or {}).get("weight_map", {})
    return isinstance(shards, dict) and all((index.parent / Path(str(name)).name).exists() for name in shards.values())


def _download(
    hub: Any, repository: str, revision: str | None, progress: ProgressCallback | None, cancel: Cancel | None
) -> Path:
    try:
        info = hub.HfApi().model_info(repository, revision=revision, timeout=TIMEOUT, files_metadata=True)
        sizes = {entry.rfilename: int(entry.size or 0) for entry in info.siblings or []}
        names = needed_files(sizes)
        if not names:
            raise CheckpointError(f"{repository} on {SITE} has no weights that can be read ({', '.join(WEIGHTS[:2])}).")
        _check_room(sum(sizes[name] for name in names), repository)
        meter = Meter(sum(sizes[name] for name in names), progress, cancel)
        # without a callback, the library shows its own bars on the terminal
        options = {"tqdm_class": _bar(meter, repository)} if progress or cancel else {}
        for name in names:
            path = hub.hf_hub_download(repository, name, revision=info.sha, etag_timeout=TIMEOUT, **options)
        return _path_to_open(Path(path).parent, names)
    except MergingError:
        raise
    except Exception as error:  # several libraries raise errors that have no common class
        raise _download_error(error, repository) from None


def _download_error(error: Exception, repository: str) -> CheckpointError:
    """The error of a download as one sentence."""
    kind = type(error).__name__
    if kind in {"RepositoryNotFoundError", "GatedRepoError", "RevisionNotFoundError", "DisabledRepoError"}:
        return CheckpointError(f"There is no public model {repository} on {SITE}, or not in that revision ({kind}).")
    if kind in {"HfHubHTTPError", "BadRequestError"}:
        return CheckpointError(f"{SITE} did not send {repository}: {printable(str(error), 100)}")
    return CheckpointError(
        f"This machine has no connection to {SITE} ({kind}); download {repository} on another one and give its path."
    )


def _check_room(needed: int, repository: str) -> None:
    from huggingface_hub.constants import HF_HUB_CACHE

    free = free_bytes(Path(HF_HUB_CACHE))
    if needed > free:
        raise CheckpointError(f"{repository} takes {size_text(needed)}, and {size_text(free)} are free.")


def _bar(meter: Meter, repository: str) -> type:
    """A class of progress bars for huggingface_hub that show nothing and report to ``meter``."""
    from tqdm.auto import tqdm

    class Silent(tqdm):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **{**kwargs, "disable": True})

        def update(self, n: float | None = 1) -> bool | None:
            meter.advance(int(n or 0), "Downloading", repository)
            return None

    return Silent
