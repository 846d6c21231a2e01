"""Attention computed explicitly: against the fused path, against plain loops, and heads whose answer is known."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tiny
import torch

from merging.images.image_encoder import Encoder

TOKENS, HEADS = tiny.TOKENS, tiny.WIDTH // 8


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return Encoder.from_checkpoint(tiny.checkpoint(tiny.pretrained()))


def tokens(n: int = 3) -> torch.Tensor:
    return torch.randn(n, TOKENS, tiny.WIDTH, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("section", range(1, tiny.LAYERS + 1))
def test_explicit_attention_gives_what_the_fused_path_gives(encoder, section, causal):
    tower, x = replace(encoder, causal=causal), tokens()
    attended = tower.attend(section, x)
    assert torch.allclose(attended.tokens, tower.run_section(section, x), atol=1e-5)
    assert attended.attention.shape == (3, HEADS, TOKENS, TOKENS)
    assert torch.allclose(attended.attention.sum(dim=-1), torch.ones(3, HEADS, TOKENS), atol=1e-6)
    assert bool((attended.attention.triu(1) == 0).all()) == causal


def test_contributions_are_what_each_token_adds_to_the_class_token(encoder):
    """By loops over tokens and heads; together with the bias they are all that the layer adds."""
    x, at = tokens(1), "transformer.resblocks.0."
    t = encoder.tensors
    rows = torch.nn.functional.layer_norm(x[0], (tiny.WIDTH,), t[at + "ln_1.weight"], t[at + "ln_1.bias"])
    values = (rows @ t[at + "attn.in_proj_weight"].T + t[at + "attn.in_proj_bias"])[:, 2 * tiny.WIDTH :]
    attended, out = encoder.attend(1, x), t[at + "attn.out_proj.weight"]
    added = torch.zeros(TOKENS, tiny.WIDTH)
    for token in range(TOKENS):
        for head in range(HEADS):
            part = slice(8 * head, 8 * head + 8)
            added[token] += attended.attention[0, head, 0, token] * values[token, part] @ out[:, part].T
    assert torch.allclose(attended.contributions[0], added.norm(dim=-1), atol=1e-5)


def test_a_head_of_zeros_looks_everywhere_alike(encoder):
    name = "transformer.resblocks.1.attn.in_proj_weight"
    weight, bias = encoder.tensors[name].clone(), encoder.tensors[name.replace("weight", "bias")].clone()
    weight[8:16], bias[8:16] = 0, 0  # the queries of the second head
    zeros = replace(encoder, tensors={**encoder.tensors, name: weight, name.replace("weight", "bias"): bias})
    attention = zeros.attend(2, tokens()).attention
    assert torch.allclose(attention[:, 1], torch.full((3, TOKENS, TOKENS), 1 / TOKENS), atol=1e-6)
    assert (attention[:, 0] - 1 / TOKENS).abs().max() > 0.05


@pytest.mark.parametrize("section", [0, tiny.LAYERS + 1])
def test_only_blocks_attend(encoder, section):
    with pytest.raises(ValueError, match=f"Section {section} is not a block"):
        encoder.attend(section, tokens())
