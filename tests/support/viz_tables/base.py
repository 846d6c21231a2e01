"""What the tables of several topics are made of: names of experts, tensors of a tower, intervals."""

from __future__ import annotations

import numpy as np
import pandas as pd

EXPERTS = ("Shapes", "Digits", "Stripes", "Letters", "Flags", "Leaves", "Signs", "Tiles")
ROLES = {"weight": "linear", "in_proj_weight": "linear", "bias": "shift", "in_proj_bias": "shift"}
BLOCK = (
    ("ln_1.weight", "ln_1", "norm_scale", 1), ("ln_1.bias", "ln_1", "shift", 1),
    ("attn.in_proj_weight", "attn.in_proj", "linear", 192), ("attn.in_proj_bias", "attn.in_proj", "shift", 3),
    ("attn.out_proj.weight", "attn.out_proj", "linear", 64), ("attn.out_proj.bias", "attn.out_proj", "shift", 1),
    ("ln_2.weight", "ln_2", "norm_scale", 1), ("ln_2.bias", "ln_2", "shift", 1),
    ("mlp.c_fc.weight", "mlp.c_fc", "linear", 256), ("mlp.c_fc.bias", "mlp.c_fc", "shift", 4),
    ("mlp.c_proj.weight", "mlp.c_proj", "linear", 256), ("mlp.c_proj.bias", "mlp.c_proj", "shift", 1),
)  # fmt: skip


def names(number: int, stem: str = "Expert") -> list[str]:
    """That many expert names."""
    return [EXPERTS[i] if i < len(EXPERTS) else f"{stem} {i + 1}" for i in range(number)]


def tensors(blocks: int = 6) -> pd.DataFrame:
    """The tensors of a vision tower: tensor, section, role, part, numel, order; 8 + 12 · blocks rows."""
    rows = [
        ("visual.class_embedding", "embeddings", "embedding", "class_embedding", 64),
        ("visual.positional_embedding", "embeddings", "embedding", "positional_embedding", 64 * 17),
        ("visual.conv1.weight", "embeddings", "conv", "conv1", 64 * 48),
        ("visual.ln_pre.weight", "embeddings", "norm_scale", "ln_pre", 64),
        ("visual.ln_pre.bias", "embeddings", "shift", "ln_pre", 64),
    ]
    for block in range(blocks):
        stem = f"visual.transformer.resblocks.{block}."
        rows += [(stem + name, f"block {block}", role, part, 64 * size) for name, part, role, size in BLOCK]
    rows += [
        ("visual.ln_post.weight", "output", "norm_scale", "ln_post", 64),
        ("visual.ln_post.bias", "output", "shift", "ln_post", 64),
        ("visual.proj", "output", "projection", "proj", 64 * 32),
    ]
    return pd.DataFrame(rows, columns=["tensor", "section", "role", "part", "numel"]).assign(order=range(len(rows)))


def wilson(correct: int, n: int) -> tuple[float, float]:
    """95 % interval of a share."""
    z, p = 1.96, correct / n
    middle, half = p + z * z / (2 * n), z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return float((middle - half) / (1 + z * z / n)), float((middle + half) / (1 + z * z / n))
