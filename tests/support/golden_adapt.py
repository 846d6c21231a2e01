"""The exact cases of methods that learn: a small tower, three experts, ten images of each task, and what comes out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

import merging
from merging.engine.run import MergeResult

GOLDEN = Path(__file__).parents[1] / "golden" / "adapt"
MANIFEST = json.loads((GOLDEN / "manifest.json").read_text())
CASES: dict[str, dict[str, Any]] = {case["name"]: case for case in MANIFEST["cases"]}
TASKS: list[str] = MANIFEST["experts"]
ARCHITECTURE = "heads=2,activation=quick_gelu"
State = dict[str, Tensor]


def load(name: str) -> State:
    """The tensors of a file; an empty mapping if there is none."""
    path = GOLDEN / f"{name}.safetensors"
    return load_file(path) if path.exists() else {}


def models(dtype: torch.dtype = torch.float64) -> tuple[State, dict[str, State]]:
    """The pretrained model and the experts."""
    base, *experts = (
        {name: value.to(dtype) for name, value in load(file).items()}
        for file in ("pretrained", *(f"expert_{task}" for task in TASKS))
    )
    return base, dict(zip(TASKS, experts, strict=True))


def images(dtype: torch.dtype = torch.float64, labeled: bool = False) -> dict[str, merging.TaskExemplars]:
    """Every task's images and head, with labels if they are to be given."""
    given = {}
    for task in TASKS:
        data = load(f"data_{task}")
        labels = data["labels"] if labeled else None
        scale = float(data["logit_scale"])
        given[task] = merging.TaskExemplars(data["images"].to(dtype), labels, data["head"].to(dtype), scale)
    return given


def run(name: str, dtype: torch.dtype = torch.float64, **options: Any) -> MergeResult:
    """A case through the public API; ``options`` replace or add to its arguments."""
    case, (base, experts) = CASES[name], models(dtype)
    given: dict[str, Any] = {"edits": [tuple(edit) for edit in case["edits"]], "device": "cpu"}
    given |= {"params": case["params"], "architecture": ARCHITECTURE}
    if "test_data" in case["needs"]:
        given["test_data"] = images(dtype)
    if "labeled_exemplars" in case["needs"]:
        given["exemplars"] = images(dtype, labeled=True)
    elif "exemplars" in case["needs"]:
        given["exemplars"] = images(dtype)
    if case["adapt"]:
        given["adapt"] = (case["adapt"], case["adapt_params"])
    return merging.merge(base, experts, case["merge"], **(given | options))


def distance(state: State, name: str) -> float:
    """How far a state dict is from a case's, relative to the case's distance from the pretrained model."""
    expected, base = load(CASES[name]["expect"]["state"].removesuffix(".safetensors")), load("pretrained")
    difference = sum(float(((state[n].double() - v) ** 2).sum()) for n, v in expected.items()) ** 0.5
    change = sum(float(((v - base[n]) ** 2).sum()) for n, v in expected.items()) ** 0.5
    return difference / change


def trace(name: str) -> State:
    """What a case recorded on the way."""
    return load(f"expect_{name}.trace")


def relative_distance(found: Tensor, expected: Tensor) -> float:
    """The relative distance of two tensors."""
    return float((found - expected).norm() / expected.norm())
