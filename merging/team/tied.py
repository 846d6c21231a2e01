"""Tensors that a file holds twice: of modules that share one."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from merging.checkpoints.checkpoint import DIGEST_PIECE, Checkpoint


def twin(model: Checkpoint, name: str, others: Sequence[str]) -> str | None:
    """The first of other tensors that holds the same bits; None if none does."""
    info = model.infos[name]
    return next((o for o in others if o != name and model.infos[o] == info and _equal(model, name, o)), None)


def _equal(model: Checkpoint, one: str, other: str) -> bool:
    numel = model.infos[one].numel
    for start in range(0, numel, DIGEST_PIECE):
        place = start, min(start + DIGEST_PIECE, numel)
        if not torch.equal(model.read_flat(one, *place), model.read_flat(other, *place)):
            return False
    return True
