"""The anonymous memory that a merge takes, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from bench import tower

from merging.formats.safetensors import save

ROOT = Path(__file__).resolve().parents[2]
STATUS = Path("/proc/self/status")
ONLY_LINUX = pytest.mark.skipif(not STATUS.exists(), reason="only Linux says how much memory is anonymous")
CHILD = """
import json, sys, threading, time
from pathlib import Path

import pandas
import torch
from merging.checkpoints.architecture import shown_sizes
from merging.engine.run import run
from merging.formats.opening import open_checkpoint
from merging.formats.safetensors import SafetensorsWriter
from merging.recipes.recipe import Recipe

def anonymous():
    status = Path("/proc/self/status").read_text()
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon"))

def watch():
    while True:
        seen.append(anonymous())
        time.sleep(0.002)

chain, images, files, out = json.loads(sys.argv[1]), int(sys.argv[2]), sys.argv[3:-1], Path(sys.argv[-1])
pretrained, *experts = (open_checkpoint(file) for file in files)
recipe = Recipe.build(chain[-1], edits=chain[:-1])
seen = [anonymous()]
threading.Thread(target=watch, daemon=True).start()
with SafetensorsWriter(out, pretrained.infos) as writer:
    named = {f"expert {k}": expert for k, expert in enumerate(experts)}
    side = shown_sizes(pretrained)["image_size"]
    shown = {name: torch.randn(images, 3, side, side) for name in named} if images else None
    run(recipe, pretrained, named, exemplars=shown, device="cpu", make_sink=lambda _: writer)
print(max(seen) - seen[0])
"""


def growth(chain: Sequence[str], files: Sequence[Path], out: Path, threads: int = 1, images: int = 0) -> int:
    """Bytes by which a process grows while it merges by edits and a merge, with random images per expert."""
    command = [sys.executable, "-c", CHILD, json.dumps(list(chain)), str(images), *map(str, files), str(out)]
    threaded = os.environ | {"OMP_NUM_THREADS": str(threads)}
    child = subprocess.run(command, check=False, cwd=ROOT, env=threaded, capture_output=True, text=True)
    assert child.returncode == 0, child.stderr
    return int(child.stdout)


def tower_files(folder: Path, experts: int, **shape: Any) -> list[Path]:
    """A pretrained tower and an expert of it, which is one file under many names: what counts is what is held of it."""
    torch.manual_seed(0)
    base = tower(**shape)
    save(folder / "pretrained.safetensors", base)
    save(folder / "0.safetensors", {n: v + 1e-3 * torch.randn_like(v) for n, v in base.items()})
    for k in range(1, experts):
        (folder / f"{k}.safetensors").hardlink_to(folder / "0.safetensors")
    return [folder / "pretrained.safetensors", *(folder / f"{k}.safetensors" for k in range(experts))]
