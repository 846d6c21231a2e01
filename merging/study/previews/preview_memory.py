"""One limit on the memory of all previewers of a process; the least recently used one drops its caches first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol
from weakref import ref

from torch import Tensor

MAX_CACHE_BYTES = 1 << 30  # beyond the models that are compared


class MemoryHolder(Protocol):
    """An object with caches that it can compute again."""

    @property
    def spare_bytes(self) -> int:
        """Bytes of the caches."""

    def drop_one(self) -> bool:
        """Drop the least important cached data; False if nothing is cached."""


class Memory:
    """The caches of several holders, together at most ``limit`` bytes."""

    def __init__(self, limit: int = MAX_CACHE_BYTES) -> None:
        self.limit = limit
        self._holders: list[
            ref[MemoryHolder]
        ] = []  # least recently used first; references to deleted holders are skipped

    @property
    def nbytes(self) -> int:
        """Bytes of the caches of all holders."""
        return sum(holder.spare_bytes for holder in self._list_alive())

    def make_room(self, holder: MemoryHolder, extra: int = 0) -> int:
        """Let all holders drop caches, ``holder`` last, until ``extra`` bytes fit; returns the bytes still free."""
        drop_order = [*(candidate for candidate in self._list_alive() if candidate is not holder), holder]
        self._holders = [ref(candidate) for candidate in drop_order]
        for candidate in drop_order:
            while self.nbytes + extra > self.limit and candidate.drop_one():
                pass
        return max(0, self.limit - self.nbytes)

    def _list_alive(self) -> list[MemoryHolder]:
        return [alive for reference in self._holders if (alive := reference()) is not None]


def count_bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of all tensors, of any shape; a tensor that occurs several times counts once."""
    return sum({tensor.data_ptr(): tensor.nbytes for tensor in tensors}.values())
