"""Names of published families there and back, tensors in any span, and namings that are refused."""

from __future__ import annotations

import pytest
import torch
from namings import to_naming

from merging.models.architecture import Architecture
from merging.models.checkpoint import MappingCheckpoint

PUBLISHED = {"ViT-B-32": (768, 12, 12, True), "ViT-B-16": (768, 12, 12, True), "ViT-L-14": (1024, 24, 16, True),
             "ViT-H-14": (1280, 32, 16, False)}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_families_go_to_transformers_and_back(name):
    """Names and shapes of the published sizes, on one number per tensor."""
    width, layers, heads, quick_gelu = PUBLISHED[name]
    state = _published(name, width, layers)
    there = to_naming(state, "hf")
    assert len(there) == 8 + 16 * layers and there["visual_projection.weight"].shape[1] == width
    back = to_naming(there, "open_clip")
    assert set(back) == set(state)
    assert all(torch.equal(back[key], value) and back[key].shape == value.shape for key, value in state.items())
    bare = to_naming(there, "open_clip_tower")
    assert all(torch.equal(bare[key.removeprefix("visual.")], value) for key, value in state.items())
    found = Architecture.from_checkpoint(MappingCheckpoint(there, name))
    assert (found.width, found.layers, found.heads, found.quick_gelu) == (width, layers, heads, quick_gelu)


def _published(name, width, layers):
    """Tensors of a published size whose storage is one number; every tensor has its own."""
    patch = int(name.rsplit("-", maxsplit=1)[-1])
    shapes = {"class_embedding": (width,), "positional_embedding": ((224 // patch) ** 2 + 1, width),
              "conv1.weight": (width, 3, patch, patch), "ln_pre.weight": (width,), "ln_pre.bias": (width,),
              "ln_post.weight": (width,), "ln_post.bias": (width,), "proj": (width, 512)}  # fmt: skip
    for block in range(layers):
        at = f"transformer.resblocks.{block}."
        thin = {"ln_1.weight": width, "ln_1.bias": width, "ln_2.weight": width, "ln_2.bias": width}
        thin |= {"attn.in_proj_bias": 3 * width, "attn.out_proj.bias": width}
        thin |= {"mlp.c_fc.bias": 4 * width, "mlp.c_proj.bias": width}
        shapes |= {at + key: (size,) for key, size in thin.items()}
        wide = {"attn.in_proj_weight": 3 * width, "attn.out_proj.weight": width}
        wide |= {"mlp.c_fc.weight": 4 * width, "mlp.c_proj.weight": width}
        shapes |= {at + key: (size, 1) for key, size in wide.items()}  # one column each: the names are what matters
    draw = torch.Generator().manual_seed(0)
    return {f"visual.{key}": torch.randn(shape, generator=draw) for key, shape in shapes.items()}
