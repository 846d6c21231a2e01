"""Digests of all that must not depend on the number of threads, printed as JSON: a test runs this in two processes.

Tensors are as wide as torch must find them to share them among threads: a block of ViT-B/32, or a third of its width
where a network runs many times.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import common_checks
import small_sweeps
import tiny
import torch
from bench import tower
from torch import Tensor

from merging.benchmarks.benchmark import Benchmark
from merging.benchmarks.image_features import features
from merging.checkpoints.architecture import Architecture
from merging.checkpoints.checkpoint import MappingCheckpoint
from merging.clip.heads import build
from merging.clip.image_encoder import Encoder
from merging.clip.text_encoder import TextTower
from merging.engine import run as engine
from merging.engine.adapting import adapt
from merging.methods import registry
from merging.methods.exemplars import TaskExemplars
from merging.recipes.recipe import Recipe
from merging.runs.store import Store
from merging.sweeps import points

NARROW, WIDE, OUT = 256, 768, 64
SIDE, PATCH, IMAGES = 224, 32, 3
EXPERTS = ("a", "b", "c")
QUICK = {"wudi": {"steps": 3}}
WIDE_ONES = ("drm", "tsv_m", "iso_c", "iso_cts", "wudi", "lot", "cat", "regmean")  # whose shapes matter


def family(width: int) -> dict[str, MappingCheckpoint]:
    """A tower with one block and the experts trained from it."""
    torch.manual_seed(0)
    base = tower(width=width, layers=1, patch=PATCH, tokens=1 + (SIDE // PATCH) ** 2, out=OUT)
    states = {"pretrained": base}
    for name in EXPERTS[: 2 if width == WIDE else 3]:
        states[name] = {key: value + 1e-2 * torch.randn_like(value) for key, value in base.items()}
    found = {name: MappingCheckpoint(state, name) for name, state in states.items()}
    shape = {"image_size": SIDE, "layers": 1, "width": width, "head_width": 64, "patch_size": PATCH}
    for checkpoint in found.values():
        checkpoint.metadata = {"architecture": json.dumps({"embed_dim": OUT, "quick_gelu": True, "vision_cfg": shape})}
    return found


def tasks(names: list[str]) -> dict[str, TaskExemplars]:
    """Random images of each task, with labels and a head."""
    draw = torch.Generator().manual_seed(1)
    return {
        name: TaskExemplars(
            torch.randn(IMAGES, 3, SIDE, SIDE, generator=draw),
            torch.randint(5, (IMAGES,), generator=draw),
            torch.nn.functional.normalize(torch.randn(5, OUT, generator=draw), dim=1),
            10.0,
        )
        for name in names
    }


def digest(parts: Mapping[str, Mapping[str, Tensor]]) -> str:
    """One digest of tensors by part and name, in their order."""
    total = hashlib.sha256()
    for part, tensors in parts.items():
        for name, tensor in tensors.items():
            total.update(f"{part} {name} {tuple(tensor.shape)}".encode())
            total.update(tensor.contiguous().numpy().tobytes())
    return total.hexdigest()


def merged(recipe: Recipe, models: dict[str, MappingCheckpoint]) -> str:
    """What a recipe makes of these models: tensors, what is stored and learned beside them, and tables."""
    pretrained, *experts = models.values()
    named = {expert.name: expert for expert in experts}
    shown = tasks(list(named))
    data: dict[str, Any] = {"exemplars": shown if recipe.exemplars else None}
    data["test_data"] = common_checks.unlabeled(shown) if recipe.test_data else None
    result = engine.run(recipe, pretrained, named, **data, device="cpu")
    parts = dict(result.task_state_dicts or {"merged": result.state_dict})
    if recipe.adapt:
        below = MappingCheckpoint(result.state_dict, "merged")
        below.metadata = pretrained.metadata
        modules = adapt(recipe, pretrained, named, below, **data, device="cpu").modules
        parts |= {task: {name: file.read(name) for name in file.infos} for task, file in modules.stored.items()}
        parts |= {"learned": modules.tensors, "features": {"": modules.features(shown["a"].images, "a")}}
    return digest(parts)


def methods() -> Iterator[tuple[str, str]]:
    """Every method in the narrow tower, and some in the wide one."""
    narrow, wide = family(NARROW), family(WIDE)
    for method in registry.methods():
        recipe = common_checks.recipe(method, QUICK.get(method.key))
        yield f"{method.role} {method.key}", merged(recipe, narrow)
        if method.key in WIDE_ONES:
            yield f"{method.role} {method.key}, wide", merged(recipe, wide)
    shared = Recipe.build("task_arithmetic", adapt=("wemoe", {"steps": 2, "shared": True, "routing": "image"}))
    yield "adapt wemoe, one router for images", merged(shared, narrow)


def heads() -> Iterator[tuple[str, str]]:
    """A head of many prompts."""
    torch.manual_seed(2)
    blocks = {n.removeprefix("visual."): v for n, v in tower(NARROW, 2, PATCH, 5, OUT).items() if ".resblocks." in n}
    encoder = Encoder(Architecture(0, 0, NARROW, 2, 4, OUT, True), blocks, causal=True)
    positions, norm = torch.randn(32, NARROW), (torch.ones(NARROW), torch.zeros(NARROW))
    text = TextTower(torch.randn(99, NARROW), positions, norm, torch.randn(NARROW, OUT), encoder, 100.0)
    draw = torch.Generator().manual_seed(3)
    names = [f"class {number}" for number in range(150)]
    head = build(
        text, names, ["a {}.", "the {}."],
        tokenize=lambda prompts, context: torch.randint(99, (len(prompts), context), generator=draw),
    )  # fmt: skip
    yield "head", digest({"": {"rows": head.rows}})


def evaluated(folder: Path) -> Iterator[tuple[str, str]]:
    """Features of images, and the points of a sweep as they are stored."""
    draw = torch.Generator().manual_seed(4)
    images = torch.randn(150, 3, SIDE, SIDE, generator=draw)
    yield "features", digest({"": {"": features(Encoder.of(family(NARROW)["pretrained"]), images)}})
    benchmark, store = Benchmark.load(tiny.write_benchmark(folder / "bench")), Store(folder / "store")
    small_sweeps.run(small_sweeps.sweep(benchmark, "ties"), store, benchmark)
    for path in sorted(points.folder(store).rglob("scores.csv")):
        yield f"point {path.parent.name}", hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))  # else no more than there are cores
    found = {"threads": str(torch.get_num_threads())}
    for more in (methods(), heads(), evaluated(Path(sys.argv[1]))):
        found |= dict(more)
    print(json.dumps(found))
