"""What every edit and merge makes of tiny CLIP towers, and the ids of its runs, in a form that a small file can hold.

``PYTHONPATH=. python tests/support/frozen_clip.py`` writes tests/methods/frozen_clip.json anew. That is right only
where results are meant to change, with a new version of the method.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

import common_checks
import tiny
import torch

from merging.base import settings
from merging.methods import registry
from merging.methods.method import Adapt, Method, Needs
from merging.models.checkpoint import MappingCheckpoint
from merging.models.formats.model_sources import open_checkpoint
from merging.recipes.recipe import Recipe

FILE = Path(__file__).parents[1] / "methods" / "frozen_clip.json"
SPREAD = 4093  # different numbers in the models, evenly over an interval
Frozen = dict[str, Any]
STEPS = {"wudi": {"steps": 300}, "awd": {"steps": 300}}  # more than in other tests


def numbers(shape: tuple[int, ...], seed: int, size: float) -> torch.Tensor:
    """Numbers in [-size, size) that only integers decide, so that they are the same bits on every machine."""
    places = torch.arange(torch.Size(shape).numel(), dtype=torch.int64)
    mixed = (places * 2654435761 + (seed + 1) * 40503) % 4294967291
    return (mixed % SPREAD).double().div(SPREAD / 2).sub(1).mul(size).to(torch.float32).reshape(shape)


@cache
def models() -> tuple[dict[str, torch.Tensor], dict[str, dict[str, torch.Tensor]]]:
    """A pretrained tower and three experts, float32, under open_clip's names."""
    base = {name: numbers(shape, seed, 0.25) for seed, (name, shape) in enumerate(tiny.shapes().items())}
    experts = {}
    for k in range(3):
        moves = {name: numbers(value.shape, 100 * (k + 1) + seed, 0.02 * (1 + seed % 3))
                 for seed, (name, value) in enumerate(base.items())}  # fmt: skip
        experts[f"expert {k}"] = {name: value + moves[name] for name, value in base.items()}
    return base, experts


# They learn by steps, or divide by sums over all scalars: the last bits differ between processors.
ROUNDED_SUMS = {"awd", "pcb"}


def same_bits(method: Method) -> bool:
    """Whether a method's results are the same bits on every machine: no matrix product and no network is in them."""
    is_exact = method.is_elementwise(method.params()) and method.needs is Needs.NOTHING
    return is_exact and method.key not in ROUNDED_SUMS


def bits(state: dict[str, torch.Tensor]) -> str:
    """The digest of a state dict: names, types, shapes and bytes, in order."""
    digest = hashlib.sha256()
    for name, value in state.items():
        digest.update(f"{name} {value.dtype} {list(value.shape)} ".encode())
        digest.update(value.contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def sums(state: dict[str, torch.Tensor], base: dict[str, torch.Tensor]) -> list[float]:
    """The change of each tensor as one number, weighted so that every scalar and its place count."""
    found = []
    for name, value in state.items():
        change = (value.double() - base[name].double()).flatten()
        found.append(float(change @ torch.cos(torch.arange(change.numel(), dtype=torch.float64))))
    return found


def merge_digests(method: Method) -> Any:
    """A method's results on the tiny towers: a digest of each state dict, or the sums of its changes."""
    base, experts = models()
    states = common_checks.states(common_checks.merge(method, base, experts, STEPS.get(method.key)))
    return [bits(state) if same_bits(method) else sums(state, base) for state in states]


def run_id(recipe: Recipe) -> str:
    """The id of a recipe's run on the tiny towers."""
    base, experts = models()
    opened = {name: MappingCheckpoint(state, name) for name, state in experts.items()}
    pretrained = tiny.checkpoint(base)
    digests = {name: expert.digest for name, expert in opened.items()}
    named = Recipe.from_plain({**recipe.to_plain(), "experts": dict.fromkeys(experts, "memory")})
    return named.run_id(pretrained.digest, digests, "a benchmark", parameters=pretrained.parameters)


def bundled_ids() -> dict[str, str]:
    """{stored id: id computed anew} of the bundled merges, from recipes and inputs' digests."""
    parameters = open_checkpoint("bundled:pretrained").parameters
    found = {}
    for folder in sorted(settings.LIBRARY_FOLDER.iterdir()):
        facts = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        if facts["kind"] == "merge":
            recipe, inputs = Recipe.load(folder / "recipe.yaml"), facts["inputs"]
            experts = {name: inputs[f"experts/{name}"] for name, _ in recipe.experts}
            drawn = facts["benchmark"] if recipe.exemplars else ""
            found[folder.name] = recipe.run_id(inputs["pretrained"], experts, drawn, False, parameters)
    return found


def tested() -> list[Method]:
    """Every registered edit and merge."""
    return [method for method in registry.list_methods() if not isinstance(method, Adapt)]


def frozen() -> Frozen:
    """Everything that is held, computed now."""
    return {
        "results": {f"{method.role} {method.key}": merge_digests(method) for method in tested()},
        "ids": {
            f"{method.role} {method.key}": run_id(common_checks.recipe(method, STEPS.get(method.key)))
            for method in tested()
        },
        "library": sorted(bundled_ids().values()),
    }


if __name__ == "__main__":
    FILE.write_text(json.dumps(frozen(), indent=1) + "\n", encoding="utf-8")
