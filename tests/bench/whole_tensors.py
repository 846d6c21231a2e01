"""A merge of ViT-L/14 by DRM on several numbers of workers: equal bytes, and the seconds that the whole one would take.

    PYTHONPATH=.:tests/support python tests/bench/whole_tensors.py [--blocks 1] [--experts 4] [--workers 1 4 16]

The models have random weights of the shapes of L/14, cut to so many blocks. Each tensor is first computed here, on
one thread. From these seconds it estimates the whole tower of 24 blocks: what all tensors take together, and how long
the last of so many workers is busy if the largest tensors go first and each worker has a core of its own. Then the cut
model is merged without workers and with processes of this machine, and the digests of the files are compared; more
processes than cores show no gain. The seconds are of the CPU where the line says so, else of the clock.
"""

from __future__ import annotations

import argparse
import hashlib
import heapq
import tempfile
import time
from pathlib import Path

import psutil
import torch
from random_towers import shapes, tower
from safetensors.torch import save_file

from merging.engine.chain_work import list_separable_tensors
from merging.engine.run import SingleTensors
from merging.recipes.recipe import Recipe
from merging.study.runs.execute import execute
from merging.study.runs.opened_recipe import open_inputs
from merging.study.runs.run_store import Store
from merging.tasks.context import Context

L14 = {"width": 1024, "patch": 14, "side": 16, "embed": 768}
BLOCKS = 24
FINE_TUNING = 0.01  # of the spread of weights


def written(folder: Path, blocks: int, experts: int) -> Recipe:
    """The files of a pretrained model and of so many experts, and the recipe that merges them."""
    base = tower(0, layers=blocks, **L14)
    save_file(base, folder / "pretrained.safetensors")
    for number in range(experts):
        draw = torch.Generator().manual_seed(1 + number)
        tuned = {
            name: values + FINE_TUNING * (values.std(correction=0) + 0.01) * torch.randn(values.shape, generator=draw)
            for name, values in base.items()
        }
        save_file(tuned, folder / f"expert_{number}.safetensors")
    paths = {f"e{number}": str(folder / f"expert_{number}.safetensors") for number in range(experts)}
    return Recipe.build("drm", {}, [], str(folder / "pretrained.safetensors"), paths)


def alone(recipe: Recipe) -> dict[str, float]:
    """{tensor: CPU seconds on one thread}, the largest first."""
    opened = open_inputs(recipe)
    merge, taken = SingleTensors(recipe, opened.pretrained, opened.experts, "cpu"), dict[str, float]()
    for name in list_separable_tensors(recipe, opened.pretrained, len(opened.experts)):
        started = time.process_time()
        merge.compute(name)
        taken[name] = time.process_time() - started
        print(f"  {name} {list(opened.pretrained.infos[name].shape)}: {taken[name]:.1f} CPU s", flush=True)
    return taken


def whole(taken: dict[str, float], blocks: int) -> list[float]:
    """The seconds of every tensor of the whole tower, those of its blocks from the ones that were measured."""
    there = set(shapes(layers=blocks, **L14))
    assert set(taken) <= there
    in_blocks = [seconds for name, seconds in taken.items() if ".resblocks." in name]
    others = [seconds for name, seconds in taken.items() if ".resblocks." not in name]
    return sorted(in_blocks * (BLOCKS // blocks) + others, reverse=True)


def longest(each: list[float], workers: int) -> float:
    """The seconds until the last of so many workers is done, if each takes the next largest as soon as it is free."""
    free = [0.0] * workers
    for seconds in each:
        heapq.heappush(free, heapq.heappop(free) + seconds)
    return max(free)


def merged(recipe: Recipe, workers: str) -> tuple[str, float, float]:
    """The sha-256 of the merged file, the seconds of the clock, and the part of the machine that was busy."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        psutil.cpu_percent()
        execute(recipe, Store(Path(folder), libraries=()), evaluate=False, context=Context("cpu", workers=workers))
        wall, busy = time.monotonic() - started, psutil.cpu_percent() / 100
        (file,) = Path(folder).glob("runs/*/model.safetensors")
        return hashlib.sha256(file.read_bytes()).hexdigest(), wall, busy


def main() -> None:
    """Print a line for each number of workers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=1, help="a divisor of 24")
    parser.add_argument("--experts", type=int, default=4)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 4, 16])
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        recipe = written(Path(folder), asked.blocks, asked.experts)
        taken = alone(recipe)
        each = whole(taken, asked.blocks)
        print(f"Estimated for {BLOCKS} blocks and {asked.experts} experts: {len(each)} tensors, {sum(each):.0f} CPU s")
        for count in asked.workers:
            last = longest(each, count)
            print(f"  {count:>3} workers, a core each: {last:6.0f} s, {sum(each) / last:4.1f} times as fast as one")
        digests = set()
        for spec in ("", *map(str, asked.workers)):
            digest, wall, busy = merged(recipe, spec)
            digests.add(digest)
            print(
                f"{spec or 'no':>3} workers: {wall:6.1f} s for {asked.blocks} blocks, {100 * busy:.0f} % of the "
                f"machine busy, sha-256 {digest[:12]}",
                flush=True,
            )
        print("All digests are equal." if len(digests) == 1 else f"There are {len(digests)} different digests!")


if __name__ == "__main__":
    main()
