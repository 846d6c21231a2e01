"""Configurations of exported models state the tower's own numbers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from merging.sharing.export.targets import find_target


@pytest.mark.parametrize("quick", [True, False])
def test_configurations_state_the_towers_sizes_and_activation(quick: bool) -> None:
    architecture = SimpleNamespace(
        image_size=48, patch_size=8, width=96, layers=3, heads=4, embed_dim=20, quick_gelu=quick
    )
    tower: Any = SimpleNamespace(
        architecture=architecture, mlp_width=384, mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6), text=None, dtype="float32",
        activation="quick_gelu" if quick else "gelu", has_projection=True,
    )  # fmt: skip
    open_clip = find_target("open_clip").make_configs(tower)["open_clip_config.json"]
    model, images = open_clip["model_cfg"], open_clip["preprocess_cfg"]
    assert (model["quick_gelu"], model["embed_dim"]) == (quick, 20)
    vision = {"image_size": 48, "layers": 3, "width": 96, "head_width": 24, "patch_size": 8}
    assert model["vision_cfg"] == vision
    assert (images["mean"], images["std"]) == ([0.1, 0.2, 0.3], [0.4, 0.5, 0.6])
    files = find_target("hf").make_configs(tower)
    config, prepared = files["config.json"], files["preprocessor_config.json"]
    sizes = ("hidden_size", "num_attention_heads", "num_hidden_layers", "patch_size", "image_size", "projection_dim")
    assert [config[name] for name in sizes] == [96, 4, 3, 8, 48, 20]
    assert config["hidden_act"] == ("quick_gelu" if quick else "gelu") and config["intermediate_size"] == 384
    assert (prepared["image_mean"], prepared["image_std"]) == ([0.1, 0.2, 0.3], [0.4, 0.5, 0.6])
