"""Tensors that several modules of a network share, and that a file stores once or several times."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from merging.models.checkpoint import DIGEST_PIECE, Checkpoint
from merging.models.formats.configs import TRANSFORMERS, read_json


def find_equal_tensor(model: Checkpoint, name: str, candidates: Sequence[str]) -> str | None:
    """The first other candidate that holds the same bits as tensor ``name``; None if there is none."""
    return next(
        (candidate for candidate in candidates if candidate != name and is_equal(model, name, model, candidate)), None
    )


def is_tied(model: Checkpoint, stored: Sequence[str]) -> bool:
    """Whether input and output embeddings are one tensor; ``stored`` names those that the file holds.

    If the file holds only one of them, the configuration tells whether the network has the other.
    """
    if len(stored) != 1:
        return len(stored) > 1 and find_equal_tensor(model, stored[0], stored[1:]) is not None
    config = (read_json(model.folder / TRANSFORMERS) if model.folder else None) or {}
    names = config.get("architectures")
    has_no_head = isinstance(names, list) and all(str(name).endswith("Model") for name in names)
    return config.get("tie_word_embeddings") is not False and not has_no_head


def is_equal(model: Checkpoint, name: str, other_model: Checkpoint, other_name: str) -> bool:
    """Whether a tensor of one model and a tensor of another have the same shape, dtype and bits."""
    if other_model.infos[other_name] != model.infos[name]:
        return False
    numel = model.infos[name].numel
    spans = ((start, min(start + DIGEST_PIECE, numel)) for start in range(0, numel, DIGEST_PIECE))
    return all(torch.equal(model.read_flat(name, *span), other_model.read_flat(other_name, *span)) for span in spans)
