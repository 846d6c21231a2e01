"""A checkpoint that is a weighted sum of others, computed tensor by tensor as it is read."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from merging.checkpoints.checkpoint import Checkpoint
from merging.checkpoints.families import Role
from merging.inspection.fit import fit


class CombinedCheckpoint(Checkpoint):
    """base + Σ coefficient · (checkpoint − base), in the base's dtype; buffers are the base's.

    Nothing is kept in memory: each read reads the same span of every part. With the one term (1, checkpoint) it is
    that checkpoint, bit for bit.

    Raises:
        CompatibilityError: a checkpoint does not have the base's tensors.
    """

    def __init__(self, base: Checkpoint, terms: Sequence[tuple[float, Checkpoint]], name: str = "combination") -> None:
        if terms:
            parts = {f"{place}: {part.name}": part for place, (_, part) in enumerate(terms, 1)}
            fit(base, parts, values=False).raise_if_bad()
        self.name, self.label = name, "memory"
        self.infos, self.metadata = base.infos, base.metadata
        self._base = base
        self._terms = [(coefficient, part) for coefficient, part in terms if coefficient != 0]
        self._buffers = {parameter.name for parameter in base.parameters if parameter.role == Role.BUFFER}

    def read_flat(self, name: str, start: int, stop: int) -> Tensor:
        own = self._base.read_flat(name, start, stop)
        if name in self._buffers or not self._terms:
            return own
        if [coefficient for coefficient, _ in self._terms] == [1.0]:
            return self._terms[0][1].read_flat(name, start, stop).to(own.dtype)
        first = own.to(torch.float64 if own.dtype == torch.float64 else torch.float32)
        total = first.clone()
        for coefficient, part in self._terms:
            total += coefficient * (part.read_flat(name, start, stop).to(first.dtype) - first)
        return total.to(own.dtype)
