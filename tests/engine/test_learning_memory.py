"""Memory while coefficients or routers are learned: never a model per expert."""

from __future__ import annotations

import json
from pathlib import Path

import measured_memory
import pytest
import torch
from bench import tower

from merging.models.formats.safetensors import save

FEW, MANY = 2, 6
LEARN = """
from merging.engine import routed_network
from merging.engine.adapt import adapt
from merging.engine.learning.learn import learn
from merging.engine.run import run_recipe
from merging.models.formats.model_sources import open_checkpoint
from merging.models.formats.safetensors import SafetensorsWriter
from merging.images.exemplars import TaskExemplars
from merging.engine.modules import mixed_tower
from merging.recipes.recipe import Recipe
from merging.tasks.context import Context

count, pretrained, expert, out = int(sys.argv[1]), *map(Path, sys.argv[2:5])
base, named = open_checkpoint(pretrained), {f"expert {k}": open_checkpoint(expert) for k in range(count)}
head = torch.nn.functional.normalize(torch.randn(5, 256), dim=1)
tasks = {name: TaskExemplars(torch.randn(1, 3, 112, 112), None, head) for name in named}
adapted = sys.argv[5:] == ["wemoe"]
routers = {"steps": 2, "batch": 1, "router_layers": 1}
step = ("weight_averaging", {}) if adapted else ("adamerging", {"steps": 2, "batch": 1})
recipe = Recipe.build(
    *step, architecture="heads=6,activation=gelu", adapt=("wemoe", routers) if adapted else None
)
mixed_tower.CACHED_BYTES = routed_network.ACTIVATIONS_CPU = 0  # as for towers that are larger than the limits
torch.randn(1, 3, 112, 112, requires_grad=True).square().sum().backward()  # what autograd itself takes
if adapted:  # the merged model itself is no part of the measurement
    with SafetensorsWriter(out, base.infos) as writer:
        run_recipe(recipe, base, named, test_data=tasks, context=Context("cpu"), make_sink=lambda _: writer)
with measured():
    if adapted:
        adapt(recipe, base, named, open_checkpoint(out), test_data=tasks, context=Context("cpu"))
    else:
        with SafetensorsWriter(out, base.infos) as writer:
            run_recipe(recipe, base, named, test_data=tasks, context=Context("cpu"), make_sink=lambda _: writer)
"""


@measured_memory.ONLY_LINUX
@pytest.mark.full
def test_more_experts_take_the_memory_of_a_few_tensors(tmp_path: Path) -> None:
    """One file under many names: what counts is what is held of it."""
    base = _family(tmp_path)
    growth = {count: _growth(count, tmp_path) for count in (FEW, MANY)}
    model, tensor = sum(v.nbytes for v in base.values()), max(v.nbytes for v in base.values())
    more = MANY - FEW
    assert growth[FEW] > 2 * model  # weights and their gradients, so the measurement sees what it should
    assert growth[MANY] - growth[FEW] < 6 * more * tensor < 0.5 * more * model


@measured_memory.ONLY_LINUX
@pytest.mark.full
def test_routers_learn_with_one_block_of_every_expert_in_memory(tmp_path: Path) -> None:
    """Where a tower is too large for all of it to be kept: one block's MLPs of each expert may be held, never all."""
    base = _family(tmp_path)
    growth = {count: _growth(count, tmp_path, "wemoe") for count in (FEW, MANY)}
    model = sum(v.nbytes for v in base.values())
    block = sum(v.nbytes for name, v in base.items() if ".resblocks.0.mlp." in name)
    more = MANY - FEW
    assert growth[FEW] > model  # the tower, so the measurement sees what it should
    assert growth[MANY] - growth[FEW] < 4 * more * block  # and not the 6 blocks of every expert


def _family(folder: Path) -> dict[str, torch.Tensor]:
    """A pretrained tower, which is given back, and one expert, in files."""
    torch.manual_seed(0)
    base = tower(width=384, layers=6, patch=16, tokens=50, out=256)
    architecture = {"quick_gelu": False, "vision_cfg": {"head_width": 64, "image_size": 112, "patch_size": 16}}
    metadata = {"architecture": json.dumps(architecture)}
    save(folder / "pretrained.safetensors", base, metadata)
    save(folder / "expert.safetensors", {n: v + 1e-3 * torch.randn_like(v) for n, v in base.items()}, metadata)
    return base


def _growth(experts: int, folder: Path, *adapt: str) -> int:
    files = [folder / "pretrained.safetensors", folder / "expert.safetensors", folder / f"merged {experts}"]
    # Large blocks go back to the system at once, so that the memory of the process is what is in use.
    return measured_memory.growth_of(LEARN, experts, *files, *adapt, MALLOC_MMAP_THRESHOLD_="65536")
