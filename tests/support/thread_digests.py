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
import pandas as pd
import small_sweeps
import tiny
import torch
from bench import tower
from torch import Tensor

from merging.engine import run as engine
from merging.engine.adapt import adapt
from merging.engine.evaluation.image_features import compute_features
from merging.images.benchmarks.benchmark import Benchmark
from merging.images.exemplars import TaskExemplars
from merging.images.image_encoder import Encoder
from merging.images.text_encoder import TextTower
from merging.images.zero_shot_heads import build_head
from merging.methods import registry
from merging.models.architecture import Architecture
from merging.models.checkpoint import MappingCheckpoint
from merging.recipes.recipe import Recipe
from merging.study.runs.run_store import Store
from merging.study.sweeps import points
from merging.tasks.context import Context

NARROW, WIDE, OUT = 256, 512, 64
SIDE, PATCH, IMAGES = 224, 32, 5  # with so few, products are cut between two threads
EXPERTS = ("a", "b", "c")
# More than one step: the first of Adam goes as far for any gradient.
QUICK = {key: {"steps": 3} for key in ("wudi", "adamerging", "localize_and_stitch", "surgery", "twin", "wemoe")}
LEARNING = ("merge fisher", *(f"merge {key}" for key in ("adamerging", "localize_and_stitch")),
            *(f"adapt {key}" for key in ("surgery", "twin", "wemoe")), "one router", "head", "features")  # fmt: skip
WIDE_ONES = (
    "drm",
    "tsv_m",
    "iso_c",
    "iso_cts",
    "wudi",
    "lot",
    "cat",
    "regmean",
    "knots",
    "core_space",
    "karcher",
)  # whose shapes matter; fmt: skip


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


def digest(parts: Mapping[str, Mapping[str, Tensor]], tables: Mapping[str, pd.DataFrame] | None = None) -> str:
    """One digest of tensors by part and name and of tables by name, in their order."""
    total = hashlib.sha256()
    for part, tensors in parts.items():
        for name, tensor in tensors.items():
            total.update(f"{part} {name} {tuple(tensor.shape)}".encode())
            total.update(tensor.contiguous().numpy().tobytes())
    for name, table in (tables or {}).items():
        total.update(f"{name} {table.to_csv()}".encode())
    return total.hexdigest()


def digest_merge(recipe: Recipe, models: dict[str, MappingCheckpoint]) -> str:
    """What a recipe makes of these models: tensors, what is stored and learned beside them, and tables."""
    pretrained, *experts = models.values()
    named = {expert.name: expert for expert in experts}
    shown = tasks(list(named))
    data: dict[str, Any] = {"exemplars": shown if recipe.exemplars else None}
    data["test_data"] = common_checks.unlabeled(shown) if recipe.test_data else None
    result = engine.run_recipe(recipe, pretrained, named, context=Context(device="cpu"), **data)
    parts, tables = dict(result.task_state_dicts or {"merged": result.state_dict}), dict(result.tables)
    if recipe.adapt:
        below = MappingCheckpoint(result.state_dict, "merged")
        below.metadata = pretrained.metadata
        adapted = adapt(recipe, pretrained, named, below, context=Context(device="cpu"), **data)
        modules = adapted.modules
        parts |= {task: {name: file.read(name) for name in file.infos} for task, file in modules.stored.items()}
        parts |= {"learned": modules.tensors, "features": {"": modules.features(shown["a"].images, "a")}}
        tables |= adapted.tables
    return digest(parts, tables)


def digest_method(name: str, models: dict[str, MappingCheckpoint]) -> str:
    """What "merge ties" makes of these models; "one router" is WEMoE's other way."""
    if name == "one router":
        shared = {"steps": 3, "shared": True, "routing": "image"}
        return digest_merge(Recipe.build("task_arithmetic", adapt=("wemoe", shared)), models)
    role, key = name.split()
    method = registry.find_method(role, key)
    merged = dict(list(models.items())[: None if method.max_experts is None else 1 + method.max_experts])
    return digest_merge(common_checks.recipe(method, QUICK.get(key)), merged)


def digest_head() -> str:
    """A head of ten prompts."""
    torch.manual_seed(2)
    blocks = {n.removeprefix("visual."): v for n, v in tower(128, 2, PATCH, 5, OUT).items() if ".resblocks." in n}
    encoder = Encoder(Architecture(0, 0, 128, 2, 2, OUT, True), blocks, causal=True)
    positions, norm = torch.randn(16, 128), (torch.ones(128), torch.zeros(128))
    text = TextTower(torch.randn(99, 128), positions, norm, torch.randn(128, OUT), encoder, 100.0)
    draw = torch.Generator().manual_seed(3)
    names = [f"class {number}" for number in range(10)]
    head = build_head(
        text, names, ["a {}."],
        tokenize=lambda prompts, context: torch.randint(99, (len(prompts), context), generator=draw),
    )  # fmt: skip
    return digest({"": {"rows": head.rows}})


def digest_features(model: MappingCheckpoint) -> str:
    """Features of images."""
    images = torch.randn(IMAGES, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(4))
    return digest({"": {"": compute_features(Encoder.from_checkpoint(model), images)}})


def digest_named(name: str, models: dict[str, MappingCheckpoint]) -> str:
    """The digest of one of ``LEARNING``."""
    if name == "head":
        return digest_head()
    return digest_features(models["pretrained"]) if name == "features" else digest_method(name, models)


def digest_everything(folder: Path) -> Iterator[tuple[str, str]]:
    """Every method in the narrow tower, some in the wide one, a head, features, and points as they are stored."""
    narrow, wide = family(NARROW), family(WIDE)
    every = [f"{method.role} {method.key}" for method in registry.list_methods()]
    for name in dict.fromkeys((*every, *LEARNING)):
        yield name, digest_named(name, narrow)
    for name in every:
        if name.split()[1] in WIDE_ONES:
            yield f"{name}, wide", digest_named(name, wide)
    benchmark, store = Benchmark.load(tiny.write_benchmark(folder / "bench")), Store(folder / "store")
    small_sweeps.run(small_sweeps.sweep(benchmark, "ties"), store, benchmark)
    for path in sorted(points.points_folder(store).rglob("scores.csv")):
        yield f"point {path.parent.name}", hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))  # else no more than there are cores
    print(json.dumps({"threads": str(torch.get_num_threads()), **dict(digest_everything(Path(sys.argv[1])))}))
