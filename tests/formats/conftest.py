"""Models of open_clip and Transformers, built once for the files that tests write of them."""

from __future__ import annotations

import peers
import pytest
import torch
from real_models import EMBED, SIZES


@pytest.fixture(scope="module")
def clip():
    """A whole open_clip model and its state dict."""
    return peers.clip(SIZES, EMBED)


@pytest.fixture(scope="module")
def transformers():
    return peers.transformers()


@pytest.fixture(scope="module")
def vision_config(transformers):
    return transformers.CLIPVisionConfig(
        hidden_size=24, intermediate_size=96, num_hidden_layers=2, num_attention_heads=3, image_size=16, patch_size=4,
        projection_dim=EMBED, hidden_act="gelu",
    )  # fmt: skip


@pytest.fixture(scope="module")
def projecting(transformers, vision_config):
    torch.manual_seed(1)
    return transformers.CLIPVisionModelWithProjection(vision_config).eval()
