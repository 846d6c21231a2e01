"""One bound on the memory of all previews of a process: who used it least recently gives way first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol
from weakref import ref

from torch import Tensor

LIMIT = 1 << 30  # bytes that stay in memory, beyond the models that are compared


class MemoryHolder(Protocol):
    """Something that keeps what it could compute again."""

    @property
    def spare_bytes(self) -> int:
        """Bytes that it could do without."""

    def drop_one(self) -> bool:
        """Drop the piece that is missed least; False if there is none."""


class Memory:
    """What several holders keep, as one sum of at most ``limit`` bytes."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self._holders: list[ref[MemoryHolder]] = []  # least recently used first; one that is gone counts no longer

    @property
    def nbytes(self) -> int:
        """What all holders could do without."""
        return sum(holder.spare_bytes for holder in self._alive())

    def make_room(self, holder: MemoryHolder, extra: int = 0) -> int:
        """Let all drop, ``holder`` last, until ``extra`` bytes fit; returns how many bytes may be added."""
        used = [*(one for one in self._alive() if one is not holder), holder]
        self._holders = [ref(one) for one in used]
        for one in used:
            while self.nbytes + extra > self.limit and one.drop_one():
                pass
        return max(0, self.limit - self.nbytes)

    def _alive(self) -> list[MemoryHolder]:
        return [one for holder in self._holders if (one := holder()) is not None]


def count_bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of all tensors; one that occurs several times counts once."""
    return sum({tensor.data_ptr(): tensor.nbytes for tensor in tensors}.values())
