"""Which weight of a module a tensor is: the parameter itself, a view of it, or some rows of a packed one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class WeightUse:
    """A weight as a call uses it: the tensor's name, and which of its rows."""

    name: str
    transposed: bool = False  # the call uses the other orientation than is stored
    start: int = 0
    stop: int | None = None  # None: all rows


class KnownWeights:
    """The weights of a module, found again by their memory."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self._at: dict[int, list[tuple[str, Tensor]]] = {}
        for name, weight in weights.items():
            self._at.setdefault(weight.untyped_storage().data_ptr(), []).append((name, weight))

    def find(self, tensor: object) -> WeightUse | None:
        """The weight that a tensor is; None for every other tensor."""
        if not isinstance(tensor, Tensor) or not tensor.ndim:
            return None
        for name, weight in self._at.get(tensor.untyped_storage().data_ptr(), ()):
            if (use := _use(name, weight, tensor)) is not None:
                return use
            turned = _use(name, weight, tensor.mT) if tensor.ndim == 2 else None
            if turned is not None:
                return WeightUse(name, True, turned.start, turned.stop)
        return None


def _use(name: str, weight: Tensor, tensor: Tensor) -> WeightUse | None:
    """How a tensor in the same memory, in the stored orientation, uses a weight; None if it does not."""
    ahead = tensor.storage_offset() - weight.storage_offset()
    if ahead == 0 and tensor.shape == weight.shape and tensor.stride() == weight.stride():
        return WeightUse(name)
    if not weight.is_contiguous() or not tensor.is_contiguous():
        return None
    if ahead == 0 and tensor.numel() == weight.numel():
        return WeightUse(name)
    packed = weight.ndim == tensor.ndim == 2 and tensor.shape[1] == weight.shape[1]
    if packed and 0 <= ahead < weight.numel() and ahead % weight.shape[1] == 0:
        start = ahead // weight.shape[1]
        return WeightUse(name, False, start, start + tensor.shape[0])
    return None
