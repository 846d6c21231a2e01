"""Models that users name, opened as checkpoints. Importing this module does not load torch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from merging.base.errors import CheckpointError, FamilyError
from merging.models.model_references import HUB_PREFIX, NAMED, PRETRAINED, PRETRAINED_TAG, locate

if TYPE_CHECKING:
    from torch import Tensor

    from merging.models.checkpoint import Checkpoint

Source: TypeAlias = "str | os.PathLike[str] | ModelRef | Checkpoint | Mapping[str, Tensor]"


@dataclass(frozen=True)
class ModelRef:
    """A model that a user names: a path, or a name in a models folder, a benchmark or the Hub.

    The reference is resolved at most once, and nothing is read before the model is opened. Relative paths start at
    ``base``, by default the current folder. ``text`` is the reference as recipes and messages have it.
    """

    text: str
    base: Path | None = None

    @cached_property
    def path(self) -> Path:
        """The path of its file or folder, which need not exist; a model on the Hub has no path until it is fetched.

        Raises:
            CheckpointError: the models folder is unknown, or the path leads out of its folder.
        """
        return locate(self.text, self.base)

    @cached_property
    def is_on_hub(self) -> bool:
        """Whether it is on huggingface.co: ``hf-hub:organization/name``, or open_clip's ``model/tag``."""
        if self.text.startswith(HUB_PREFIX):
            return True
        return bool(PRETRAINED_TAG.fullmatch(self.text)) and not self.path.exists()

    def exists(self) -> bool:
        """Whether it is on the Hub, or its path exists."""
        return self.is_on_hub or os.path.lexists(self.path)

    def absolute(self) -> str:
        """The text that refers to the same model from every folder."""
        return self.text if self.text.startswith(NAMED) or self.is_on_hub else str(self.path.absolute())

    def fetch(self) -> Path:
        """The path of its file or folder; a model on the Hub is fetched if it is not in the cache.

        Raises:
            CheckpointError: as ``path``, or the model cannot be fetched from the Hub.
            Cancelled: the user cancelled.
        """
        if not self.is_on_hub:
            return self.path
        from merging.models.formats.hub_models import fetch

        return fetch(self.text)

    def open(self, name: str | None = None, like: Checkpoint | None = None, family: str = "") -> Checkpoint:
        """Its checkpoint; see ``open_checkpoint``."""
        return open_checkpoint(self, name, like, family)


def open_checkpoint(
    source: Source, name: str | None = None, like: Checkpoint | None = None, family: str = ""
) -> Checkpoint:
    """A checkpoint from a reference, a mapping of tensors, or a Checkpoint (returned unchanged).

    The format of a file or folder is recognized by its content, and tensors get open_clip's names. ``like`` is the
    pretrained model of an expert: the expert gets its names, and an adapter is applied to it. ``family``, one of
    FAMILY_KEYS, replaces recognition: "clip" extracts a CLIP tower from a larger network, and "inferred" leaves names
    unchanged.

    Raises:
        CheckpointError: the source is not a checkpoint (the message says what it is), or a part of it is damaged.
        FamilyError: ``family`` is "clip" and the model holds no complete CLIP image encoder.
    """
    from merging.models.checkpoint import Checkpoint
    from merging.models.checkpoint_views import identity_view, rename_to_pretrained, to_open_clip_names
    from merging.models.families import CLIP_KEY, INFERRED_KEY

    checkpoint = open_stored(source, name)
    if family == INFERRED_KEY:
        checkpoint = identity_view(checkpoint) if checkpoint is source else checkpoint
        checkpoint.family = family
    elif family == CLIP_KEY and checkpoint.is_inferred:
        checkpoint = to_open_clip_names(checkpoint, extract_tower=True)
        if checkpoint.is_inferred:
            raise FamilyError(
                f"{checkpoint.name} holds no whole CLIP image encoder; leave the family out, and all of it is merged."
            )
    elif not isinstance(source, (Checkpoint, Mapping)):
        checkpoint = to_open_clip_names(checkpoint)
    return checkpoint if like is None else rename_to_pretrained(like, checkpoint)


def open_models(
    pretrained: Source, experts: Mapping[str, Source], family: str = ""
) -> tuple[Checkpoint, dict[str, Checkpoint]]:
    """The checkpoints of a pretrained model and {name: expert}; experts get the pretrained model's tensor names.

    Raises:
        CheckpointError: as ``open_checkpoint``.
    """
    pretrained_checkpoint = open_checkpoint(pretrained, PRETRAINED, family=family)
    return pretrained_checkpoint, {
        name: open_checkpoint(source, name, pretrained_checkpoint, family) for name, source in experts.items()
    }


def open_stored(source: Source, name: str | None = None) -> Checkpoint:
    """The checkpoint of a source, with tensors under the names in its file.

    Raises:
        CheckpointError: as ``open_checkpoint``.
    """
    from merging.models.checkpoint import Checkpoint, MappingCheckpoint
    from merging.models.formats.format_recognition import open_path

    if isinstance(source, Checkpoint):
        return source
    if isinstance(source, Mapping):
        return MappingCheckpoint(source, name or "checkpoint")
    if isinstance(source, (str, os.PathLike)):
        source = ModelRef(str(os.fspath(source)))
    if not isinstance(source, ModelRef):
        kind = type(source).__name__
        raise CheckpointError(f"{name or 'A checkpoint'} is a path, a Checkpoint or a mapping of tensors; got {kind}.")
    path = source.fetch()
    return open_path(path, name or path.stem, source.text)
