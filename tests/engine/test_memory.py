"""Memory of a merge: a few tensors times the number of experts, never a model per expert."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from bench import tower

from merging.formats.opening import open_checkpoint
from merging.formats.safetensors import save

ROOT = Path(__file__).resolve().parents[2]
EXPERTS = 20
CHILD = """
import json, sys, threading, time
from pathlib import Path

import pandas
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

chain, files, out = json.loads(sys.argv[1]), sys.argv[2:-1], Path(sys.argv[-1])
pretrained, *experts = (open_checkpoint(file) for file in files)
recipe = Recipe.build(chain[-1], edits=chain[:-1])
seen = [anonymous()]
threading.Thread(target=watch, daemon=True).start()
with SafetensorsWriter(out, pretrained.infos) as writer:
    named = {f"expert {k}": expert for k, expert in enumerate(experts)}
    run(recipe, pretrained, named, device="cpu", make_sink=lambda _: writer)
print(max(seen) - seen[0])
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux says how much memory is anonymous")
@pytest.mark.slow
def test_twenty_experts_take_the_memory_of_a_few_tensors(tmp_path):
    """TIES after DARE, which holds random masks, quantile samples and sign votes besides the task vectors."""
    torch.manual_seed(0)
    base = tower(width=384, layers=2, patch=16, tokens=50, out=256)
    save(tmp_path / "pretrained.safetensors", base)
    save(tmp_path / "0.safetensors", {n: v + 1e-3 * torch.randn_like(v) for n, v in base.items()})
    for k in range(1, EXPERTS):  # one file under many names: what counts is what is held of it
        (tmp_path / f"{k}.safetensors").hardlink_to(tmp_path / "0.safetensors")
    files = [tmp_path / "pretrained.safetensors", *(tmp_path / f"{k}.safetensors" for k in range(EXPERTS))]

    command = [sys.executable, "-c", CHILD, json.dumps(["dare", "ties"]), *map(str, files), str(tmp_path / "merged")]
    quiet = os.environ | {"OMP_NUM_THREADS": "1"}
    child = subprocess.run(command, check=False, cwd=ROOT, env=quiet, capture_output=True, text=True)
    assert child.returncode == 0, child.stderr
    assert set(open_checkpoint(tmp_path / "merged").infos) == set(base)

    growth = int(child.stdout)
    models = EXPERTS * sum(v.nbytes for v in base.values())
    tensors = EXPERTS * max(v.nbytes for v in base.values())
    assert growth < 3 * tensors < 0.5 * models
