"""Random masks in which every scalar's random number depends on its address, not on earlier numbers.

Whether a scalar is kept depends only on the method, the seed, the expert's name, the tensor's name and the scalar's
flat position: not on the order of tensors or experts, on the pieces in which a tensor streams, or on the device. A hash
of the names selects a stream of PCG64-DXSM, which can jump to any position.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.random import PCG64DXSM
from numpy.typing import NDArray
from torch import Tensor

from merging.methods.slot import Slot

SCALARS_PER_WORD = 8  # a word of the generator has a byte for each of 8 scalars
SECOND_BYTES_START = 1 << 64  # the word of the stream at which the scalars' second bytes begin


def sample_survivors(method: str, seed: int, drop_rate: float | Sequence[float], slot: Slot) -> Tensor:
    """The masks (K, *S), bytes on the slot's device: 1 for kept scalars, 0 for dropped ones.

    Each scalar is dropped with probability ``drop_rate``, independently of the others; it is one number, or one per
    expert. For one seed, a higher rate drops all scalars that a lower rate drops. Different ``method`` names use
    different random numbers.
    """
    numel = slot.pretrained.numel()
    rates = [drop_rate] * len(slot.experts) if isinstance(drop_rate, int | float) else drop_rate
    generator = PCG64DXSM(0)
    kept = np.empty((len(slot.experts), numel), dtype=bool)
    for row, expert, rate in zip(kept, slot.experts, rates, strict=True):
        stream = _open_stream(method, seed, expert, slot.name)
        first_limit, second_limit = divmod(stream.limit(rate), 256)  # limits for a scalar's two bytes
        first_bytes = stream.read(generator, slot.start, numel)
        np.greater_equal(first_bytes, first_limit, out=row)
        if second_limit:  # decides where the first byte equals its limit; rates such as 0.5 do not need it
            second_bytes = stream.read(generator, slot.start, numel, SECOND_BYTES_START)
            np.logical_and(row, (first_bytes != first_limit) | (second_bytes >= second_limit), out=row)
    # Bytes, because torch converts booleans to numbers ten times more slowly.
    return torch.from_numpy(kept.view(np.uint8)).to(slot.pretrained.device).reshape(slot.task_vectors.shape)


def sample_at_rates(method: str, seed: int, drop_rates: Tensor, slot: Slot) -> Tensor:
    """The masks (K, *S) of ``sample_survivors`` where every scalar has a drop rate of its own, (K, *S)."""
    numel = slot.pretrained.numel()
    generator = PCG64DXSM(0)
    kept = np.empty((len(slot.experts), numel), dtype=bool)
    for row, rates, expert in zip(kept, drop_rates.flatten(1).double().cpu().numpy(), slot.experts, strict=True):
        stream = _open_stream(method, seed, expert, slot.name)
        numbers = stream.read(generator, slot.start, numel).astype(np.int32) * 256
        numbers += stream.read(generator, slot.start, numel, SECOND_BYTES_START)
        np.greater_equal(numbers, (rates * 2**16 + stream.rounding).astype(np.int32), out=row)
    return torch.from_numpy(kept.view(np.uint8)).to(slot.pretrained.device).reshape(slot.task_vectors.shape)


@lru_cache(maxsize=1 << 10)
def _open_stream(method: str, seed: int, expert: str, tensor: str) -> RandomBytes:
    return RandomBytes.from_address(json.dumps([method, seed, expert, tensor]))


@dataclass(frozen=True, slots=True)
class RandomBytes:
    """The random bytes of one expert's tensor, two per scalar."""

    start: int  # the generator's state
    increment: int  # selects the generator's stream
    rounding: float  # in [0, 1), rounds the limit

    @classmethod
    def from_address(cls, address: str) -> RandomBytes:
        """The stream that the hash of an address selects."""
        digest = hashlib.blake2b(address.encode(), digest_size=38).digest()
        parts = (digest[:16], digest[16:32], digest[32:])
        start, increment, rounding = (int.from_bytes(part, "little") for part in parts)
        return cls(start, increment | 1, rounding / 2**48)  # the generator requires an odd increment

    def limit(self, drop_rate: float) -> int:
        """The number in [0, 2¹⁶] that a scalar's two bytes must reach for the scalar to be kept.

        It is rounded up or down at random, once per stream, so that the average rate is exact.
        """
        return int(drop_rate * 2**16 + self.rounding)

    def read(self, generator: PCG64DXSM, start: int, numel: int, first_word: int = 0) -> NDArray[np.uint8]:
        """The bytes (numel,) of the scalars from flat position ``start`` on; ``first_word`` has those of position 0."""
        skip = start % SCALARS_PER_WORD
        generator.state = {
            "bit_generator": "PCG64DXSM",
            "state": {"state": self.start, "inc": self.increment},
            "has_uint32": 0,
            "uinteger": 0,
        }
        generator.advance(first_word + start // SCALARS_PER_WORD)
        words: NDArray[np.uint64] = generator.random_raw(-(-(skip + numel) // SCALARS_PER_WORD))  # rounded up
        return words.view(np.uint8)[skip : skip + numel]
