"""Times LOT and CAT, split into forward passes and linear algebra: ``python tests/bench/bench.py --data``.

On the bundled benchmark with training images of its own, and on the synthetic ViT-B/32 checkpoints (K = 8) with 64 and
2 exemplars per task. Those images are random numbers: they cost what real ones cost, and their results mean nothing.

Every case is a process of its own. "plain" are forward passes that record nothing, with each tower in memory; "forward"
are the passes of the merge, which record and read each block when it is its turn; "algebra" is the rest of the merge:
sums of products, factorizations, reading task vectors, writing. Seconds are the clock's; "CPU s" are all processors'.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

BUNDLED, SYNTHETIC = "bundled benchmark", "ViT-B/32"
CHAINS = {"lot": ("lot", []), "cat → task_arithmetic": ("task_arithmetic", ["cat"])}
COUNTS = (64, 2)  # exemplars per task
SIDE = 224


def cases(only: str = "") -> dict[str, tuple[str, str, int]]:
    """{name: (model, chain, exemplars per task)} of the cases with ``only`` in their name."""
    every = {
        f"{m}, {chain}, {n} per task": (m, chain, n) for m in (BUNDLED, SYNTHETIC) for chain in CHAINS for n in COUNTS
    }
    return {name: case for name, case in every.items() if only in name}


def report(files: list[Path], device: str, only: str) -> None:
    """Print a row for every case; ``files`` are the synthetic checkpoints."""
    titles = (
        f"{'case':50} {'plain s':>8} {'forward s':>9} {'ratio':>6} {'algebra s':>9} {'whole s':>8} {'CPU s':>7}  device"
    )
    print(titles, flush=True)
    for name, (model, chain, count) in cases(only).items():
        print(f"{name:50} {_row(chain, count, files if model == SYNTHETIC else [], device)}", flush=True)


def _row(chain: str, count: int, paths: list[Path], device: str) -> str:
    command = [sys.executable, __file__, chain, str(count), device, *map(str, paths)]
    child = subprocess.run(command, check=True, capture_output=True, text=True)
    found: Mapping[str, Any] = json.loads(child.stdout.splitlines()[-1])
    plain, forward = found["plain"], found["forward"]
    return (
        f"{plain:8.2f} {forward:9.2f} {forward / plain:6.2f} {found['whole'] - forward:9.2f} {found['whole']:8.2f} "
        f"{found['cpu']:7.2f}  {found['device']}"
    )


def _inputs(files: list[str], count: int) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """Pretrained, experts and their exemplars; of the bundled benchmark where no files are named."""
    import torch

    from merging.images.benchmarks.benchmark import Benchmark
    from merging.models.formats.model_sources import open_checkpoint
    from merging.recipes.presets import find_preset
    from merging.study.runs.opened_recipe import open_inputs

    if not files:
        benchmark = Benchmark.load()
        opened = open_inputs(find_preset("lot").recipe(benchmark.pretrained, benchmark.experts), benchmark=benchmark)
        return opened.pretrained, dict(opened.experts), benchmark.exemplars(count)
    pretrained, *experts = (open_checkpoint(file) for file in files)
    named = {f"expert {k}": expert for k, expert in enumerate(experts)}
    draw = torch.Generator().manual_seed(0)
    return pretrained, named, {name: torch.randn(count, 3, SIDE, SIDE, generator=draw) for name in named}


class Spent:
    """Seconds spent in a method: of all threads together, and of the clock while any thread is in it."""

    def __init__(self) -> None:
        self.of_threads, self.of_clock = 0.0, 0.0
        self._lock, self._inside, self._since = threading.Lock(), 0, 0.0

    def enter(self) -> float:
        """The time at which a thread begins."""
        with self._lock:
            now = time.monotonic()
            self._since = self._since if self._inside else now
            self._inside += 1
            return now

    def leave(self, started: float) -> None:
        """Count what a thread took that ends now."""
        with self._lock:
            now = time.monotonic()
            self._inside -= 1
            self.of_threads += now - started
            self.of_clock += 0.0 if self._inside else now - self._since


@contextmanager
def _spent(owner: type, name: str, device: Any) -> Iterator[Spent]:
    """Seconds spent in a method while the block runs; what an accelerator still has to do is waited for."""
    method, spent = getattr(owner, name), Spent()

    def timed(*args: Any, **kwargs: Any) -> Any:
        _wait(device)
        started = spent.enter()
        try:
            return method(*args, **kwargs)
        finally:
            _wait(device)
            spent.leave(started)

    setattr(owner, name, timed)
    try:
        yield spent
    finally:
        setattr(owner, name, method)


def _wait(device: Any) -> None:
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _plain(pretrained: Any, experts: Mapping[str, Any], exemplars: Mapping[str, Any], device: Any) -> float:
    """Seconds of the same forward passes, in the same batches, without looking at anything."""
    import torch

    from merging.images.batch_sizes import batch_size
    from merging.images.image_encoder import Encoder

    seconds = 0.0
    for name, expert in experts.items():
        encoder = Encoder.from_checkpoint(expert, device, fallback=pretrained)
        images = exemplars[name].to(device)
        _wait(device)
        started = time.monotonic()
        with torch.inference_mode():
            for batch in images.split(batch_size(encoder.architecture, device)):
                encoder(batch)
        _wait(device)
        seconds += time.monotonic() - started
    return seconds


def child(chain: str, count: int, wanted: str, files: list[str]) -> None:
    """Time one case and print what it took."""
    from merging.base import devices
    from merging.engine import run as engine
    from merging.engine.layer_inputs import CapturedInputs
    from merging.methods.moments import Moments
    from merging.recipes.recipe import Recipe
    from merging.tasks.context import Context

    merge, edits = CHAINS[chain]
    device = devices.choose_device(wanted)
    pretrained, experts, exemplars = _inputs(files, count)
    plain = _plain(pretrained, experts, exemplars, device)
    recipe = Recipe.build(merge, edits=edits)
    before = time.process_time()
    with _spent(CapturedInputs, "_run", device) as running, _spent(Moments, "add", device) as adding:
        result = engine.run_recipe(recipe, pretrained, experts, exemplars=exemplars, context=Context(device=wanted))
    # Sums of products are made as the rows come, in passes of several experts at once.
    forward = running.of_clock * (1 - adding.of_threads / running.of_threads)
    found = {"plain": plain, "forward": forward, "whole": result.seconds, "device": result.device}
    found["cpu"] = time.process_time() - before
    print(json.dumps(found))


if __name__ == "__main__":
    child(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4:])
