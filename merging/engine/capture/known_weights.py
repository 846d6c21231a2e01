"""Finding the weight that a tensor belongs to: a parameter itself, a view of it, or some rows of a packed one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class WeightUse:
    """The use of a weight by a call: the tensor's name and the range of its rows."""

    name: str
    transposed: bool = False  # whether the call uses the transpose of the stored tensor
    start: int = 0
    stop: int | None = None  # None: all rows


class KnownWeights:
    """The weights (*S) of a module, found by their memory addresses."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self._by_address: dict[int, list[tuple[str, Tensor]]] = {}
        for name, weight in weights.items():
            self._by_address.setdefault(weight.untyped_storage().data_ptr(), []).append((name, weight))

    def find(self, tensor: object) -> WeightUse | None:
        """The weight that a tensor belongs to, and its rows; None for every other object."""
        if not isinstance(tensor, Tensor) or not tensor.ndim:
            return None
        for name, weight in self._by_address.get(tensor.untyped_storage().data_ptr(), ()):
            if (use := _find_use(name, weight, tensor)) is not None:
                return use
            transposed = _find_use(name, weight, tensor.mT) if tensor.ndim == 2 else None
            if transposed is not None:
                return WeightUse(name, True, transposed.start, transposed.stop)
        return None


def _find_use(name: str, weight: Tensor, tensor: Tensor) -> WeightUse | None:
    """The part of a weight (*S) that a tensor in the same memory shows, in the stored orientation; None if none."""
    offset = tensor.storage_offset() - weight.storage_offset()
    if offset == 0 and tensor.shape == weight.shape and tensor.stride() == weight.stride():
        return WeightUse(name)
    if not weight.is_contiguous() or not tensor.is_contiguous():
        return None
    if offset == 0 and tensor.numel() == weight.numel():
        return WeightUse(name)
    packed = weight.ndim == tensor.ndim == 2 and tensor.shape[1] == weight.shape[1]
    if packed and 0 <= offset < weight.numel() and offset % weight.shape[1] == 0:
        start = offset // weight.shape[1]
        return WeightUse(name, False, start, start + tensor.shape[0])
    return None
