"""CLIP's visual tower written once more, slowly and with other means, and open_clip's state dicts under other names."""

from __future__ import annotations

import re

import torch
from torch import Tensor

State = dict[str, Tensor]
NAMES = (
    (r"class_embedding", "vision_model.embeddings.class_embedding"),
    (r"positional_embedding", "vision_model.embeddings.position_embedding.weight"),
    (r"conv1\.", "vision_model.embeddings.patch_embedding."),
    (r"ln_pre\.", "vision_model.pre_layrnorm."),
    (r"ln_post\.", "vision_model.post_layernorm."),
    (r"transformer\.resblocks\.(\d+)\.ln_(\d)\.", r"vision_model.encoder.layers.\1.layer_norm\2."),
    (r"transformer\.resblocks\.(\d+)\.mlp\.c_fc\.", r"vision_model.encoder.layers.\1.mlp.fc1."),
    (r"transformer\.resblocks\.(\d+)\.mlp\.c_proj\.", r"vision_model.encoder.layers.\1.mlp.fc2."),
    (r"transformer\.resblocks\.(\d+)\.attn\.", r"vision_model.encoder.layers.\1.self_attn."),
)


def hugging_face(state: State) -> State:
    """A tower under Hugging Face's names: q, k and v apart, the projection as a linear layer's weight."""
    found: State = {}
    for full, value in state.items():
        name = full.removeprefix("visual.")
        for pattern, other in NAMES:
            name = re.sub(rf"^{pattern}", other, name)
        if name == "proj":
            found["visual_projection.weight"] = value.T.contiguous()
        elif "in_proj" in name:
            for letter, part in zip("qkv", value.chunk(3), strict=True):
                found[re.sub("in_proj_", f"{letter}_proj.", name)] = part
        else:
            found[name] = value
    return found


def _affine(x: Tensor, state: State, at: str) -> Tensor:
    return torch.einsum("...i,oi->...o", x, state[at + ".weight"]) + state[at + ".bias"]


def _normed(x: Tensor, state: State, at: str) -> Tensor:
    center = x - x.mean(dim=-1, keepdim=True)
    return (
        center / (center.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt() * state[at + ".weight"]
        + state[at + ".bias"]
    )


def _attention(x: Tensor, state: State, at: str, heads: int, outputs: State) -> Tensor:
    q, k, v = (_affine(x, state, f"{at}.{letter}_proj") for letter in "qkv")
    outputs |= {f"{at}.{letter}_proj.weight": out for letter, out in zip("qkv", (q, k, v), strict=True)}
    width = x.shape[-1] // heads
    mixed = []
    for start in range(0, x.shape[-1], width):
        head = slice(start, start + width)
        scores = torch.einsum("nsd,ntd->nst", q[..., head], k[..., head]) * width**-0.5
        mixed.append(scores.exp() / scores.exp().sum(dim=-1, keepdim=True) @ v[..., head])
    return _affine(torch.cat(mixed, dim=-1), state, at + ".out_proj")


def layer_outputs(state: State, images: Tensor, layers: int, heads: int, patch: int) -> State:
    """What leaves every layer with a weight, {parameter name: (..., d_out)}; the state has Hugging Face's names."""
    body, found = "vision_model.", {}
    n, _, height, width = images.shape
    at = body + "embeddings."
    squares = [
        images[:, :, top : top + patch, left : left + patch].reshape(n, -1)
        for top in range(0, height, patch)
        for left in range(0, width, patch)
    ]
    kernel = state[at + "patch_embedding.weight"]
    patches = torch.stack(squares, dim=1) @ kernel.reshape(len(kernel), -1).T
    found[at + "patch_embedding.weight"] = patches
    first = state[at + "class_embedding"].expand(n, 1, -1)
    x = torch.cat([first, patches], dim=1) + state[at + "position_embedding.weight"]
    x = found[body + "pre_layrnorm.weight"] = _normed(x, state, body + "pre_layrnorm")
    for block in range(layers):
        at = f"{body}encoder.layers.{block}."
        y = found[at + "layer_norm1.weight"] = _normed(x, state, at + "layer_norm1")
        y = found[at + "self_attn.out_proj.weight"] = _attention(y, state, at + "self_attn", heads, found)
        x = x + y
        y = found[at + "layer_norm2.weight"] = _normed(x, state, at + "layer_norm2")
        y = found[at + "mlp.fc1.weight"] = _affine(y, state, at + "mlp.fc1")
        y = found[at + "mlp.fc2.weight"] = _affine(y / (1 + (-1.702 * y).exp()), state, at + "mlp.fc2")
        x = x + y
    x = found[body + "post_layernorm.weight"] = _normed(x[:, 0], state, body + "post_layernorm")
    found["visual_projection.weight"] = x @ state["visual_projection.weight"].T
    return found
