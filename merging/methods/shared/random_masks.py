"""Random masks in which the draw of every scalar follows from its address, not from the draws before it.

Whether a scalar is kept depends on the method that draws, the seed, the expert's name, the tensor's name and the
scalar's flat position, and on nothing else: not on the order of tensors or experts, not on the pieces in which a tensor
streams, not on the device. A hash of the names picks a stream of PCG64-DXSM, which jumps to any position at once.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.random import PCG64DXSM
from numpy.typing import NDArray
from torch import Tensor

from merging.methods.slot import Slot

PER_WORD = 8  # a word of the generator holds a byte for each of eight scalars
SECOND_BYTES = 1 << 64  # the word from which the scalars' second bytes are read


def sample_survivors(method: str, seed: int, drop_rate: float, slot: Slot) -> Tensor:
    """1 for the scalars that are kept and 0 for those that are dropped, (K, *S) bytes on the slot's device.

    Each is dropped with probability ``drop_rate``, independently of the others. At one seed, a higher rate drops what a
    lower one drops and more; different ``method`` words draw different numbers.
    """
    numel = slot.pretrained.numel()
    generator = PCG64DXSM(0)
    kept = np.empty((len(slot.experts), numel), dtype=bool)
    for row, expert in zip(kept, slot.experts, strict=True):
        stream = _random_bytes(method, seed, expert, slot.name)
        first, second = divmod(stream.limit(drop_rate), 256)
        numbers = stream.read(generator, slot.start, numel)
        np.greater_equal(numbers, first, out=row)
        if second:  # decides where the first byte does not; rates such as 0.5 and 0.25 do not need it
            more = stream.read(generator, slot.start, numel, SECOND_BYTES)
            np.logical_and(row, (numbers != first) | (more >= second), out=row)
    # Bytes, because torch turns booleans into numbers ten times more slowly.
    return torch.from_numpy(kept.view(np.uint8)).to(slot.pretrained.device).reshape(slot.task_vectors.shape)


@lru_cache(maxsize=1 << 10)
def _random_bytes(method: str, seed: int, expert: str, tensor: str) -> RandomBytes:
    return RandomBytes.from_address(json.dumps([method, seed, expert, tensor]))


@dataclass(frozen=True, slots=True)
class RandomBytes:
    """The random bytes of one expert's tensor, two per scalar."""

    start: int
    increment: int
    rounding: float

    @classmethod
    def from_address(cls, address: str) -> RandomBytes:
        digest = hashlib.blake2b(address.encode(), digest_size=38).digest()
        number = [int.from_bytes(digest[at], "little") for at in (slice(16), slice(16, 32), slice(32, None))]
        return cls(number[0], number[1] | 1, number[2] / 2**48)

    def limit(self, drop_rate: float) -> int:
        """The number in [0, 2¹⁶] that the two bytes of a scalar must reach for it to be kept.

        Rounded up or down at random, once per stream, so that on average not even 16 bits round the rate.
        """
        return int(drop_rate * 2**16 + self.rounding)

    def read(self, generator: PCG64DXSM, start: int, numel: int, word: int = 0) -> NDArray[np.uint8]:
        """The bytes (numel,) of the scalars from flat position ``start`` on."""
        skip = start % PER_WORD
        generator.state = {
            "bit_generator": "PCG64DXSM",
            "state": {"state": self.start, "inc": self.increment},
            "has_uint32": 0,
            "uinteger": 0,
        }
        generator.advance(word + start // PER_WORD)
        words: NDArray[np.uint64] = generator.random_raw(-(-(skip + numel) // PER_WORD))
        return words.view(np.uint8)[skip : skip + numel]
