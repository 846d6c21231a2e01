"""Samples of models' numbers, by which models can be compared without reading them again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from merging.models.checkpoint import Checkpoint
from merging.models.families import Parameter, Role
from merging.models.inspection.distance import Distance
from merging.models.inspection.tensor_pieces import tensor_pieces
from merging.models.tower_names import PROJ, group_tower_names


@dataclass(frozen=True, eq=False)
class ModelSample:
    """Numbers of each tensor (n,), float32: ``whole`` small tensors, and ``runs`` of large ones.

    Runs are scaled as in ``Distance.add_runs``.
    """

    whole: Mapping[str, Tensor]
    runs: Mapping[str, Tensor]

    def distance(self, base: ModelSample) -> Distance:
        """The distance from ``base``, as a fit report estimates it, over the tensors that both have in the same size.

        A tower without an output projection counts as if it had the projection of ``base``, which it gets in a merge.
        """
        distance = Distance()
        for own_numbers, base_numbers, add in (
            (self.whole, base.whole, distance.add),
            (self.runs, base.runs, distance.add_runs),
        ):
            pairs = [
                (base_numbers[name], own_numbers.get(name, base_numbers[name]))
                for name in base_numbers
                if name in own_numbers or name == PROJ
            ]
            pairs = [pair for pair in pairs if pair[0].shape == pair[1].shape]
            if pairs:
                base_values, own_values = (torch.cat(side).double() for side in zip(*pairs, strict=True))
                add(base_values, own_values - base_values)
        return distance


def in_blocks(checkpoint: Checkpoint) -> dict[str, Parameter]:
    """{key: parameter inside the blocks} of a network other than CLIP; prefixes of names do not change the key."""
    return {f"{p.section}.{p.part}.{p.role}": p for p in checkpoint.parameters if p.block is not None}


def _select_sampled_names(checkpoint: Checkpoint) -> Mapping[str, Sequence[str]]:
    """{key: names in the file} of the sampled tensors.

    The whole visual tower of CLIP is sampled. For other networks, the matrices of the first and middle block suffice.
    """
    if not checkpoint.is_inferred:
        return group_tower_names(checkpoint.infos)
    parameters = in_blocks(checkpoint)
    last_block = max((p.block or 0 for p in parameters.values()), default=0)
    sampled_blocks = {0, (last_block + 1) // 2}
    return {key: (p.name,) for key, p in parameters.items() if p.role == Role.LINEAR and p.block in sampled_blocks}


def sample_model(checkpoint: Checkpoint) -> ModelSample | None:
    """The sample of a model, CLIP's under open_clip's names; None if it cannot be compared."""
    whole: dict[str, Tensor] = {}
    runs: dict[str, Tensor] = {}
    for name, stored in _select_sampled_names(checkpoint).items():
        info = checkpoint.infos[stored[0]]
        if len(stored) != 1 or not info.dtype.is_floating_point:
            return None
        pieces = list(tensor_pieces(name, info.numel, sampled=True))
        values = [piece.weight**0.5 * piece.finite(checkpoint, stored[0]) for piece in pieces]
        if values:
            (runs if pieces[0].sampled else whole)[name] = torch.cat(values).float()
    return ModelSample(whole, runs) if whole or runs else None
