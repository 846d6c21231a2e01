"""A checkpoint that is a weighted sum of others, computed on reading, and the sum that is nearest to a merge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from merging.models.checkpoint import Checkpoint
from merging.models.families import UNMERGED
from merging.models.inspection.fit_check import check_fit
from merging.study.runs.opened_recipe import OpenedRecipe
from merging.tasks.context import QUIET, Context

PIECE_SCALARS = 1 << 22  # scalars of all models together that are in memory at a time


class CombinedCheckpoint(Checkpoint):
    """base + Σ coefficient · (checkpoint − base), in the base's dtype; buffers (tensors never merged) are the base's.

    No tensor stays in memory: each read reads the same span of every checkpoint. With the single term (1, checkpoint)
    it equals that checkpoint bit for bit.

    Raises:
        CompatibilityError: a checkpoint does not have the base's tensors.
    """

    def __init__(self, base: Checkpoint, terms: Sequence[tuple[float, Checkpoint]], name: str = "combination") -> None:
        if terms:
            parts = {f"{number}: {part.name}": part for number, (_, part) in enumerate(terms, 1)}
            check_fit(base, parts, values=False).raise_if_unfit()  # compares names and shapes, reads no numbers
        self.name, self.label = name, "memory"
        self.infos, self.metadata = base.infos, base.metadata
        self._base = base
        self._terms = [(coefficient, part) for coefficient, part in terms if coefficient != 0]
        self._buffers = {parameter.name for parameter in base.parameters if parameter.role in UNMERGED}

    def read_flat(self, name: str, start: int, stop: int) -> Tensor:
        """The scalars ``start`` to ``stop`` of a tensor's flattened sum (stop - start,)."""
        stored = self._base.read_flat(name, start, stop)
        if name in self._buffers or not self._terms:
            return stored
        if [coefficient for coefficient, _ in self._terms] == [1.0]:
            return self._terms[0][1].read_flat(name, start, stop).to(stored.dtype)
        base = stored.to(torch.float64 if stored.dtype == torch.float64 else torch.float32)
        total = base.clone()
        for coefficient, part in self._terms:
            total += coefficient * (part.read_flat(name, start, stop).to(base.dtype) - base)
        return total.to(stored.dtype)


def fit_coefficients(opened: OpenedRecipe, merged: Checkpoint) -> dict[str, Any]:
    """{"at": {expert: coefficient}, "off_plane": share}: the point of the experts' plane nearest to a merged model.

    The share is the norm of the merged model's change outside the plane over that of its whole change. Least squares
    over all scalars with a coefficient for each expert; sums are in float64.
    """
    gram, _ = sum_products(opened.pretrained, [*opened.experts.values(), merged], QUIET)
    products, squared = gram[:-1, -1], gram[-1, -1]
    solution = np.linalg.lstsq(gram[:-1, :-1], products, rcond=None)[0]
    off_plane = max(0.0, squared - float(solution @ products)) / squared if squared else 0.0
    return {"at": dict(zip(opened.experts, solution.tolist(), strict=True)), "off_plane": float(off_plane**0.5)}


def sum_products(
    pretrained: Checkpoint, models: Sequence[Checkpoint], context: Context
) -> tuple[NDArray[np.float64], int]:
    """The inner products (models, models) of the changes of models, and the number of scalars that they are over.

    Weights are read in pieces, so that memory does not grow with the models.
    """
    names = [parameter.name for parameter in pretrained.parameters if parameter.role not in UNMERGED]
    names = [name for name in names if pretrained.infos[name].dtype.is_floating_point]
    scalars = sum(pretrained.infos[name].numel for name in names)
    meter = context.meter(scalars)
    gram = torch.zeros(len(models), len(models), dtype=torch.float64)
    piece = max(1, PIECE_SCALARS // len(models))
    for name in names:
        for start in range(0, size := pretrained.infos[name].numel, piece):
            stop = min(size, start + piece)
            base = pretrained.read_flat(name, start, stop).double()
            changes = torch.stack([model.read_flat(name, start, stop).double() - base for model in models])
            gram += changes @ changes.T
            meter.advance(stop - start, "Comparing weights", name)
    return gram.numpy(), scalars
