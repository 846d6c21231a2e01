"""Tensors that several modules of a network share, or that a file holds twice for them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from merging.checkpoints.checkpoint import DIGEST_PIECE, Checkpoint
from merging.formats.configs import TRANSFORMERS, read_json


def twin(model: Checkpoint, name: str, others: Sequence[str]) -> str | None:
    """The first of other tensors that holds the same bits; None if none does."""
    info = model.infos[name]
    return next((o for o in others if o != name and model.infos[o] == info and _equal(model, name, o)), None)


def is_tied(model: Checkpoint, stored: Sequence[str]) -> bool:
    """Whether input and output embeddings are one tensor, of which a file holds those in ``stored``.

    A file with one of them may be of a network without the others, which its configuration says.
    """
    if len(stored) != 1:
        return len(stored) > 1 and twin(model, stored[0], stored[1:]) is not None
    config = (read_json(model.folder / TRANSFORMERS) if model.folder else None) or {}
    names = config.get("architectures")
    headless = isinstance(names, list) and all(str(name).endswith("Model") for name in names)
    return config.get("tie_word_embeddings") is not False and not headless


def _equal(model: Checkpoint, one: str, other: str) -> bool:
    numel = model.infos[one].numel
    for start in range(0, numel, DIGEST_PIECE):
        place = start, min(start + DIGEST_PIECE, numel)
        if not torch.equal(model.read_flat(one, *place), model.read_flat(other, *place)):
            return False
    return True
