"""The model that an adapter's configuration says it was made for, beside the one that it is put on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from merging.base.text import printable
from merging.models.checkpoint import Checkpoint
from merging.models.formats.configs import ADAPTER, WEIGHTS
from merging.models.formats.hub_models import SHARD
from merging.models.model_references import hub_id_of, strip_folders

BASE_MODEL_KEY = "base_model_name_or_path"


def other_base(config: Mapping[str, Any], pretrained: Checkpoint) -> str:
    """A sentence with both names if the configuration states another base; empty if it does not, or states none.

    A folder need not bear the name of the repository that it was downloaded from: another name proves nothing.
    """
    stated = config.get(BASE_MODEL_KEY)
    if not isinstance(stated, str) or not stated or pretrained.folder is None or _is_same(stated, pretrained):
        return ""
    there, here = printable(strip_folders(stated), 80), printable(_called(pretrained), 80)
    return f"Its {ADAPTER} names {there!r} as its base, but is applied to {here!r}."


def _called(pretrained: Checkpoint) -> str:
    """The name of a model: its repository, or else its folder, or its file if that has a name of its own."""
    if known := hub_id_of(pretrained.label):
        return known
    file = Path(pretrained.label).name
    own = file not in {"", "..", *WEIGHTS} and not SHARD.fullmatch(file)
    return file if own or pretrained.folder is None else pretrained.folder.resolve().name


def _is_same(stated: str, pretrained: Checkpoint) -> bool:
    """Whether a name or a path means this model, by its last part; the path, which a file gives, is not looked up."""
    return _last(stated) in {_last(_called(pretrained)), _last(pretrained.label), Path(_last(pretrained.label)).stem}


def _last(reference: str) -> str:
    return re.split(r"[\\/:]", reference.rstrip("\\/"))[-1].partition("@")[0].casefold()
