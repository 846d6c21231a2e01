"""The anonymous memory that work takes, in a process of its own."""

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

from merging.models.formats.safetensors import save

ROOT = Path(__file__).resolve().parents[2]
STATUS = Path("/proc/self/status")
ONLY_LINUX = pytest.mark.skipif(not STATUS.exists(), reason="only Linux says how much memory is anonymous")
MEASURED = """
import json, sys, threading, time
from contextlib import contextmanager
from pathlib import Path

import pandas
import torch

def anonymous():
    status = Path("/proc/self/status").read_text()
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon"))

def watch(seen):
    while True:
        seen.append(anonymous())
        time.sleep(0.002)

@contextmanager
def peak():
    seen = [anonymous()]
    threading.Thread(target=watch, args=(seen,), daemon=True).start()
    yield seen

@contextmanager
def measured():
    with peak() as seen:
        yield
    print(max(seen) - seen[0])
"""
MERGE = """
from merging.models.architecture import sizes_from_shapes
from merging.engine.run import run_recipe
from merging.models.formats.model_sources import open_checkpoint
from merging.models.formats.safetensors import SafetensorsWriter
from merging.recipes.recipe import Recipe
from merging.tasks.context import Context

chain, images, files, out = json.loads(sys.argv[1]), int(sys.argv[2]), sys.argv[3:-1], Path(sys.argv[-1])
pretrained, *experts = (open_checkpoint(file) for file in files)
recipe = Recipe.build(chain[-1], edits=chain[:-1])
with measured(), SafetensorsWriter(out, pretrained.infos) as writer:
    named = {f"expert {k}": expert for k, expert in enumerate(experts)}
    side = sizes_from_shapes(pretrained)["image_size"]
    shown = {name: torch.randn(images, 3, side, side) for name in named} if images else None
    run_recipe(recipe, pretrained, named, exemplars=shown, context=Context("cpu"), make_sink=lambda _: writer)
"""


def growth_of(child: str, *words: object, threads: int = 1, **environment: str) -> int:
    """Bytes by which a process that runs this code grows inside its block ``with measured():``."""
    environment |= {"OMP_NUM_THREADS": str(threads)}
    return int(run_measured(child, *words, **environment))


def run_measured(child: str, *words: object, **environment: str) -> Any:
    """What a process prints as JSON that runs this code, which may use ``peak`` and ``measured``."""
    command = [sys.executable, "-c", MEASURED + child, *map(str, words)]
    done = subprocess.run(command, check=False, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def growth(chain: Sequence[str], files: Sequence[Path], out: Path, threads: int = 1, images: int = 0) -> int:
    """Bytes by which a process grows while it merges by edits and a merge, with random images per expert."""
    return growth_of(MERGE, json.dumps(list(chain)), images, *files, out, threads=threads)


def tower_files(folder: Path, experts: int, **shape: Any) -> list[Path]:
    """A pretrained tower and an expert of it, which is one file under many names: what counts is what is held of it."""
    torch.manual_seed(0)
    base = tower(**shape)
    save(folder / "pretrained.safetensors", base)
    save(folder / "0.safetensors", {n: v + 1e-3 * torch.randn_like(v) for n, v in base.items()})
    for k in range(1, experts):
        (folder / f"{k}.safetensors").hardlink_to(folder / "0.safetensors")
    return [folder / "pretrained.safetensors", *(folder / f"{k}.safetensors" for k in range(experts))]
