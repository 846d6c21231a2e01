"""A tiny CLIP tower with experts, in memory: two blocks of width 16, on which a merge takes milliseconds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from merging.models.checkpoint import MappingCheckpoint

State = dict[str, Tensor]


@dataclass(frozen=True)
class TinyTower:
    """The sizes of a tower; images are ``size`` × ``size``."""

    width: int = 16
    layers: int = 2
    patch: int = 8
    size: int = 16
    embed: int = 8

    @property
    def tokens(self) -> int:
        """The class token and one for each patch."""
        return 1 + (self.size // self.patch) ** 2

    @property
    def architecture(self) -> dict[str, Any]:
        """open_clip's description of the tower."""
        sizes = {"image_size": self.size, "layers": self.layers, "width": self.width, "patch_size": self.patch}
        return {"embed_dim": self.embed, "quick_gelu": True, "vision_cfg": {**sizes, "head_width": 8}}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """open_clip's names and shapes of the visual tower."""
        w = self.width
        found: dict[str, tuple[int, ...]] = {
            "class_embedding": (w,), "positional_embedding": (self.tokens, w),
            "conv1.weight": (w, 3, self.patch, self.patch), "ln_pre.weight": (w,), "ln_pre.bias": (w,),
        }  # fmt: skip
        for block in range(self.layers):
            at = f"transformer.resblocks.{block}."
            found |= {
                at + "ln_1.weight": (w,), at + "ln_1.bias": (w,),
                at + "attn.in_proj_weight": (3 * w, w), at + "attn.in_proj_bias": (3 * w,),
                at + "attn.out_proj.weight": (w, w), at + "attn.out_proj.bias": (w,),
                at + "ln_2.weight": (w,), at + "ln_2.bias": (w,),
                at + "mlp.c_fc.weight": (4 * w, w), at + "mlp.c_fc.bias": (4 * w,),
                at + "mlp.c_proj.weight": (w, 4 * w), at + "mlp.c_proj.bias": (w,),
            }  # fmt: skip
        found |= {"ln_post.weight": (w,), "ln_post.bias": (w,), "proj": (w, self.embed)}
        return {f"visual.{name}": shape for name, shape in found.items()}

    def make_pretrained(self, seed: int = 0) -> State:
        """Random weights of the size that such a tower has."""
        draw = torch.Generator().manual_seed(seed)
        weights = {}
        for name, shape in self.shapes().items():
            scale = 0.3 if len(shape) > 1 else 0.1
            values = scale * torch.randn(shape, generator=draw)
            weights[name] = values + 1 if ".ln_" in name and name.endswith("weight") else values
        return weights

    def make_team(self, experts: Sequence[str], seed: int = 0) -> tuple[State, dict[str, State]]:
        """A pretrained model and its experts, float32."""
        base = self.make_pretrained(seed)
        return base, {name: make_expert(base, index) for index, name in enumerate(experts)}

    def open(self, tensors: State) -> MappingCheckpoint:
        """A checkpoint in memory that knows its architecture, as files do."""
        opened = MappingCheckpoint(tensors, "tiny")
        opened.metadata = {"architecture": json.dumps(self.architecture)}
        return opened


def make_expert(base: State, seed: int, size: float = 0.1) -> State:
    """The pretrained model moved in a random direction, more in some tensors than in others."""
    draw = torch.Generator().manual_seed(1000 + seed)
    return {
        name: value + size * float(torch.rand((), generator=draw)) * torch.randn(value.shape, generator=draw)
        for name, value in base.items()
    }
