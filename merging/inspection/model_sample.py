"""A sample of a model's tower that is kept, so that models can be compared without reading them again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from merging.checkpoints.checkpoint import Checkpoint
from merging.checkpoints.tower_names import PROJ, tower
from merging.inspection.distance import Distance
from merging.inspection.sampling import pieces


@dataclass(frozen=True, eq=False)
class ModelSample:
    """Numbers of each tensor (n,), float32: all of a small one, or scaled runs of a large one."""

    whole: Mapping[str, Tensor]
    runs: Mapping[str, Tensor]

    def distance(self, base: ModelSample) -> Distance:
        """The distance from ``base``, as a fit report estimates it, over the tensors that both have in one size.

        A tower without an output projection counts as having the other's, which it gets in a merge.
        """
        distance = Distance()
        for own, others, add in (
            (self.whole, base.whole, distance.add),
            (self.runs, base.runs, distance.add_runs),
        ):
            pairs = [(others[name], own.get(name, others[name])) for name in others if name in own or name == PROJ]
            pairs = [pair for pair in pairs if pair[0].shape == pair[1].shape]
            if pairs:
                below, above = (torch.cat(side).double() for side in zip(*pairs, strict=True))
                add(below, above - below)
        return distance


def draw(checkpoint: Checkpoint) -> ModelSample | None:
    """The sample of a model under open_clip's names; None if it cannot be compared."""
    whole: dict[str, Tensor] = {}
    runs: dict[str, Tensor] = {}
    for name, stored in tower(checkpoint.infos).items():
        info = checkpoint.infos[stored[0]]
        if len(stored) != 1 or not info.dtype.is_floating_point:
            return None
        read = list(pieces(name, info.numel, sampled=True))
        values = [piece.weight**0.5 * piece.finite(checkpoint, stored[0]) for piece in read]
        if values:
            (runs if read[0].sampled else whole)[name] = torch.cat(values).float()
    return ModelSample(whole, runs) if whole or runs else None
