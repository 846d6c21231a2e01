"""Towers of any size with the random weights that open_clip begins training with."""

from __future__ import annotations

import math

import torch
from torch import Tensor

B32 = {"width": 768, "layers": 12, "patch": 32, "side": 7, "embed": 512}
MIDDLE = {"width": 64, "layers": 3, "patch": 8, "side": 4, "embed": 32}


def shapes(width: int, layers: int, patch: int, side: int, embed: int) -> dict[str, tuple[int, ...]]:
    """open_clip's names and shapes of a visual tower for images of side × side patches."""
    tensors: dict[str, tuple[int, ...]] = {
        "class_embedding": (width,), "positional_embedding": (1 + side**2, width), "proj": (width, embed),
        "conv1.weight": (width, 3, patch, patch), "ln_pre.weight": (width,), "ln_pre.bias": (width,),
    }  # fmt: skip
    for layer in range(layers):
        at = f"transformer.resblocks.{layer}."
        for norm in ("ln_1", "ln_2"):
            tensors |= {f"{at}{norm}.weight": (width,), f"{at}{norm}.bias": (width,)}
        tensors |= {f"{at}attn.in_proj_weight": (3 * width, width), f"{at}attn.in_proj_bias": (3 * width,)}
        for part, rows, columns in (
            ("attn.out_proj", width, width), ("mlp.c_fc", 4 * width, width), ("mlp.c_proj", width, 4 * width),
        ):  # fmt: skip
            tensors |= {f"{at}{part}.weight": (rows, columns), f"{at}{part}.bias": (rows,)}
    tensors |= {"ln_post.weight": (width,), "ln_post.bias": (width,)}
    return {f"visual.{name}": shape for name, shape in tensors.items()}


def tower(
    seed: int, *, dtype: torch.dtype = torch.float32, width: int, layers: int, patch: int, side: int, embed: int
) -> dict[str, Tensor]:
    """The weights: gains are one, most biases zero, matrices uniform, embeddings normal."""
    draw = torch.Generator().manual_seed(seed)
    return {
        name: _weights(name, shape, width, draw).to(dtype)
        for name, shape in shapes(width, layers, patch, side, embed).items()
    }


def _weights(name: str, shape: tuple[int, ...], width: int, draw: torch.Generator) -> Tensor:
    if len(shape) == 1 and not name.endswith("embedding"):
        return torch.ones(shape) if ".ln_" in name and name.endswith("weight") else torch.zeros(shape)
    if name.endswith(("embedding", "proj")):
        return width**-0.5 * torch.randn(shape, generator=draw)
    fan_in = math.prod(shape[1:])
    limit = (6 / (shape[0] + fan_in)) ** 0.5 if "in_proj" in name else fan_in**-0.5
    return limit * (2 * torch.rand(shape, generator=draw) - 1)
