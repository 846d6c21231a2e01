"""The tiny family with query, key and value as three tensors: in memory, on disk, and merged name by name."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import common_checks
import tiny
import torch
from namings import to_naming
from safetensors.torch import save_file
from torch import Tensor

from merging.engine import run as engine
from merging.methods.method import Edit, Merge, Method, Needs
from merging.methods.slot import Slot
from merging.models.checkpoint import MappingCheckpoint
from merging.models.families import classify_parameters
from merging.recipes.recipe import Recipe
from merging.tasks.context import Context

State = dict[str, Tensor]
PROJECTIONS = ("visual.proj", "visual_projection.weight")  # transposed among Transformers' tensors
CONFIG = {
    "model_type": "clip_vision_model", "architectures": ["CLIPVisionModel"], "hidden_size": tiny.WIDTH,
    "intermediate_size": 4 * tiny.WIDTH, "num_hidden_layers": tiny.LAYERS, "num_attention_heads": 2,
    "image_size": tiny.SIZE, "patch_size": tiny.PATCH, "projection_dim": tiny.EMBED, "hidden_act": "quick_gelu",
}  # fmt: skip


def to_transformers_names(state: Mapping[str, Tensor]) -> State:
    """A state dict under Transformers' names."""
    return to_naming(state, "hf")


def to_open_clip_names(state: Mapping[str, Tensor]) -> State:
    """A state dict under open_clip's names."""
    return to_naming(state, "open_clip")


def write(folder: Path, state: Mapping[str, Tensor]) -> Path:
    """A folder as Transformers writes one of a plain vision model; with an output projection if there is one."""
    folder.mkdir()
    whole = PROJECTIONS[1] in state
    kind = CONFIG | ({"architectures": ["CLIPVisionModelWithProjection"]} if whole else {})
    (folder / "config.json").write_text(json.dumps(kind))
    save_file({name: value.contiguous() for name, value in state.items()}, folder / "model.safetensors")
    return folder


def data_of(method: Method, names: Mapping[str, Any]) -> dict[str, Any]:
    """Images for a method that needs some."""
    tasks = common_checks.labeled_exemplars(names)
    if method.needs is Needs.NOTHING:
        return {}
    if method.needs is Needs.TEST_DATA:
        return {"test_data": common_checks.unlabeled(tasks)}
    return {"exemplars": tasks}


def merge_states(recipe: Recipe, base: State, experts: Mapping[str, State], **options: Any) -> engine.MergeResult:
    """The merge of state dicts under the names that they have."""
    opened = {name: MappingCheckpoint(state, name) for name, state in experts.items()}
    return engine.run_recipe(recipe, tiny.checkpoint(base), opened, context=Context(device="cpu"), **options)


def difference(one: Mapping[str, Tensor], other: Mapping[str, Tensor], base: Mapping[str, Tensor]) -> float:
    """How far apart two merges are, as a share of the change; the output projection is left out."""
    names = [name for name in base if name not in PROJECTIONS]
    squares = [
        sum(float((a[name] - b[name]).double().square().sum()) for name in names)
        for a, b in ((one, other), (other, base))
    ]
    return float((squares[0] / max(squares[1], 1e-300)) ** 0.5)


@dataclass(frozen=True)
class ListedSlots:
    """A stream of whole tensors in a list."""

    slots: list[Slot]
    dead_numel: int = 0
    dead_tensors: int = 0

    @property
    def experts(self) -> tuple[str, ...]:
        return self.slots[0].experts

    @property
    def parameters(self) -> tuple[Any, ...]:
        return tuple(slot.parameter for slot in self.slots)

    @property
    def numels(self) -> tuple[int, ...]:
        return tuple(slot.pretrained.numel() for slot in self.slots)

    @property
    def numel(self) -> int:
        return sum(self.numels)

    def __iter__(self) -> Iterator[Slot]:
        return iter(self.slots)

    def map(self, work: Callable[[Slot], Any]) -> Iterator[Any]:
        return map(work, self.slots)

    def thinned(self, stride: int) -> Iterator[Slot]:
        raise AssertionError("no method that treats tensors one by one asks for samples")


def merge_name_by_name(
    method: Edit | Merge, params: Mapping[str, Any], base: State, experts: Mapping[str, State], scaling: float = 0.3
) -> State:
    """A merge without the engine: every tensor of the files a slot; after an edit, the sum times ``scaling``."""
    built = method.params.build(params)
    slots = [
        Slot(p, tuple(experts), base[p.name], torch.stack([state[p.name] - base[p.name] for state in experts.values()]))
        for p in classify_parameters(base)
    ]
    statistics = None
    if method.survey is not None and method.surveys(built):
        statistics = method.survey(ListedSlots(slots), built).statistics
    changes = {slot.name: method.run(slot, built, statistics) for slot in slots}
    if isinstance(method, Edit):
        changes = {name: scaling * vectors.sum(dim=0) for name, vectors in changes.items()}
    return {name: base[name] + change for name, change in changes.items()}
