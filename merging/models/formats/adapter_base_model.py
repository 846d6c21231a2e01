"""Compares the base model in an adapter's configuration with the model that the adapter is applied to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from merging.base.text import printable
from merging.models.checkpoint import Checkpoint
from merging.models.formats.configs import ADAPTER_CONFIG, WEIGHT_FILES
from merging.models.formats.hub_models import SHARD_NAME
from merging.models.model_references import hub_id_of, strip_folders

BASE_MODEL_KEY = "base_model_name_or_path"


def describe_other_base(config: Mapping[str, Any], pretrained: Checkpoint) -> str:
    """A sentence with both names if the configuration names another base than the pretrained model, else empty.

    The sentence is only a caution, because a folder may have another name than the repository that it came from.
    """
    stated_base = config.get(BASE_MODEL_KEY)
    if (
        not isinstance(stated_base, str)
        or not stated_base
        or pretrained.folder is None
        or _is_same_model(stated_base, pretrained)
    ):
        return ""
    base_name, model_name = printable(strip_folders(stated_base), 80), printable(_model_name(pretrained), 80)
    return f"Its {ADAPTER_CONFIG} names {base_name!r} as its base, but is applied to {model_name!r}."


def _model_name(pretrained: Checkpoint) -> str:
    """The name of a model: its repository, else its file if that has a distinctive name, else its folder."""
    if hub_name := hub_id_of(pretrained.label):
        return hub_name
    file = Path(pretrained.label).name
    is_distinctive = file not in {"", "..", *WEIGHT_FILES} and not SHARD_NAME.fullmatch(file)
    return file if is_distinctive or pretrained.folder is None else pretrained.folder.resolve().name


def _is_same_model(stated_base: str, pretrained: Checkpoint) -> bool:
    """Whether a name or a path refers to this model, by its last part; an untrusted path is not opened."""
    return _last_part(stated_base) in {
        _last_part(_model_name(pretrained)),
        _last_part(pretrained.label),
        Path(_last_part(pretrained.label)).stem,
    }


def _last_part(reference: str) -> str:
    """The last part of a name or path, without revision, in lower case."""
    return re.split(r"[\\/:]", reference.rstrip("\\/"))[-1].partition("@")[0].casefold()
