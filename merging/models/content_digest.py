"""The digest of a checkpoint's content: of names, dtypes, shapes and values, but not of the file's format and order.

It is a SHA-256 in hexadecimal digits. The values of a small checkpoint are hashed directly. For a large checkpoint, the
BLAKE3 of each tensor is hashed instead, which takes a third of the time. Importing this module does not load torch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from blake3 import blake3

DIRECT_HASH_BYTES = 1 << 24  # bytes of all tensors up to which values are hashed directly

BytesCallback = Callable[[int], None]  # called with the number of bytes read since the last call


def ignore_bytes(size: int) -> None:
    """An ``BytesCallback`` that does nothing."""


class ContentDigest:
    """The digest of tensors of ``nbytes`` bytes in total, which are added in the order of their names."""

    def __init__(self, nbytes: int) -> None:
        self._total = hashlib.sha256()
        self._hashes_tensors = nbytes > DIRECT_HASH_BYTES
        self._tensor: blake3 | None = None

    def begin(self, name: str, dtype: str, shape: tuple[int, ...]) -> None:
        """Begin a tensor; ``dtype`` is its name in safetensors files."""
        self._end()
        self._total.update(f"{name}\0{dtype}\0{shape}\0".encode())
        self._tensor = blake3() if self._hashes_tensors else None

    def update(self, values: bytes | memoryview) -> None:
        """Add the next bytes of the tensor."""
        (self._tensor or self._total).update(values)

    def hexdigest(self) -> str:
        """The digest of all tensors that were added."""
        self._end()
        return self._total.hexdigest()

    def _end(self) -> None:
        if self._tensor is not None:
            self._total.update(self._tensor.digest())
            self._tensor = None
