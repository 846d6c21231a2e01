"""LoRA's formula on an adapter written by hand: scale · B A, turned over where the layer stores (d_in, d_out)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from safetensors.torch import save_file

from merging.models.formats.model_sources import open_checkpoint

LAYER = "visual.transformer.resblocks.1.mlp.c_fc"
RANK = 3


@pytest.mark.parametrize(
    ("options", "scale"),
    [
        ({"lora_alpha": 6}, 2.0),
        ({"lora_alpha": 6, "use_rslora": True}, 6 / 3**0.5),
        ({"lora_alpha": 6, "fan_in_fan_out": True}, 2.0),
        ({"lora_alpha": 6, "alpha_pattern": {"c_fc": 12}}, 4.0),
        ({"lora_alpha": 6, "rank_pattern": {"c_fc": RANK}, "r": 8}, 2.0),
    ],
)
def test_the_change_is_scale_times_b_times_a(tmp_path: Path, options: dict[str, Any], scale: float) -> None:
    base = tiny.pretrained()
    weight = base[f"{LAYER}.weight"]
    rows, columns = weight.T.shape if options.get("fan_in_fan_out") else weight.shape
    draw = torch.Generator().manual_seed(0)
    down, up = torch.randn(RANK, columns, generator=draw), torch.randn(rows, RANK, generator=draw)
    at = f"base_model.model.{LAYER}"
    save_file({f"{at}.lora_A.weight": down, f"{at}.lora_B.weight": up}, tmp_path / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": RANK, **options}
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    expert = open_checkpoint(tmp_path, like=tiny.checkpoint(base))
    change = scale * (up @ down)
    change = change.T if options.get("fan_in_fan_out") else change
    torch.testing.assert_close(expert.read(f"{LAYER}.weight"), weight + change)
    others = set(base) - {f"{LAYER}.weight"}
    assert all(torch.equal(expert.read(name), base[name]) for name in others)
