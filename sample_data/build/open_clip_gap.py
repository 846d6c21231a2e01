"""Proof that the towers are open_clip's: loaded strictly into its VisionTransformer they give the same features."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open

from merging.base.open_clip_import import prepare_torchvision
from sample_data.build.network import Tower, normalize_images


@torch.no_grad()
def open_clip_gap(folder: Path) -> float:
    """Largest difference between open_clip's features and ours, on all models and a few images each."""
    prepare_torchvision()
    from open_clip.model import CLIPVisionCfg, _build_vision_tower

    with np.load(folder / "data/flags.npz") as arrays:
        images = normalize_images(arrays["choosing_images"][:16])
    worst = 0.0
    for path in sorted((folder / "models").glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            config = json.loads(file.metadata()["architecture"])
            weights = {name.removeprefix("visual."): file.get_tensor(name).float() for name in file.keys()}  # noqa: SIM118
        theirs = _build_vision_tower(config["embed_dim"], CLIPVisionCfg(**config["vision_cfg"]), config["quick_gelu"])
        theirs.load_state_dict(weights, strict=True)
        ours = Tower()
        ours.load_state_dict(weights, strict=True)
        worst = max(worst, float((theirs.eval()(images) - ours.eval()(images)).abs().max()))
    return worst
