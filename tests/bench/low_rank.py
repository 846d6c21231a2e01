"""Seconds that merges of LoRA adapters take on one weight of Llama-3.1-8B's width, by factors and by whole matrices.

    PYTHONPATH=.:tests/support python tests/bench/low_rank.py [--side 4096] [--rank 16] [--experts 5] [drm tsv_m ...]

The factors are drawn. Both ways run after each other in this process, so that the ratio says more than the seconds.
"""

from __future__ import annotations

import argparse
import time

import torch

from merging.base.devices import describe_machine
from merging.base.numerics.low_rank import LowRank
from merging.methods.registry import find_merge
from merging.methods.slot import Slot
from merging.models.families import Parameter, Role


def drawn(side: int, rank: int, experts: int) -> Slot:
    """A square weight with task vectors in float32, and their factors."""
    torch.manual_seed(0)
    factors = tuple(
        LowRank(torch.randn(side, rank).double() / side, torch.randn(rank, side).double()) for _ in range(experts)
    )
    vectors = torch.stack([(factor.up @ factor.down).float() for factor in factors])
    parameter = Parameter("layers.0.q_proj.weight", Role.LINEAR, "q_proj", "block 0", 0, 0)
    return Slot(parameter, tuple(map(str, range(experts))), torch.zeros(side, side), vectors, factors=factors)


def seconds(key: str, slot: Slot) -> float:
    """What one merge takes on this machine now."""
    method = find_merge(key)
    started = time.perf_counter()
    method.run(slot, method.params.build({}), None)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", default=["drm"])
    parser.add_argument("--side", type=int, default=4096)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--experts", type=int, default=5)
    options = parser.parse_args()
    slot = drawn(options.side, options.rank, options.experts)
    print(f"{describe_machine()}; {options.experts} experts of rank {options.rank}, {options.side} x {options.side}")
    for key in options.methods:
        thin, whole = seconds(key, slot), seconds(key, slot.with_task_vectors(slot.task_vectors))
        print(f"{key:8} by factors {thin:7.2f} s, whole {whole:7.2f} s, {whole / thin:5.1f} times as long")


if __name__ == "__main__":
    main()
