"""A checkpoint that is a weighted sum of others, computed on reading, and the sum that is nearest to a merge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from merging.models.checkpoint import Checkpoint
from merging.models.families import UNMERGED
from merging.models.inspection.fit_check import check_fit
from merging.study.runs.opened_recipe import OpenedRecipe


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
    names, base = list(opened.experts), opened.pretrained
    gram = torch.zeros(len(names), len(names), dtype=torch.float64)
    products = torch.zeros(len(names), dtype=torch.float64)
    squared = 0.0
    for name in base.infos:
        if not base.infos[name].dtype.is_floating_point:
            continue
        pretrained = base.read(name).double().reshape(-1)
        vectors = torch.stack([part.read(name).double().reshape(-1) - pretrained for part in opened.experts.values()])
        change = merged.read(name).double().reshape(-1) - pretrained
        gram += vectors @ vectors.T
        products += vectors @ change
        squared += float(change @ change)
    solution = torch.linalg.lstsq(gram, products, driver="gelsd").solution
    off_plane = max(0.0, squared - float(solution @ products)) / squared if squared else 0.0
    return {"at": dict(zip(names, solution.tolist(), strict=True)), "off_plane": off_plane**0.5}
