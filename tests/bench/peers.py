"""The libraries that models come from and are exported for, small random models of theirs, and what they say of ours.

Their import takes seconds, so it happens when a test first asks for them.
"""

from __future__ import annotations

import json
import re
import warnings
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import yaml
from safetensors.torch import load_file
from torch import Tensor

from merging.base.open_clip_import import prepare_torchvision
from merging.images.image_encoder import Encoder
from merging.models.checkpoint import Checkpoint, MappingCheckpoint

EMBED = 12
# Small towers with the patches and head widths of the published ones: (open_clip's sizes, whether QuickGELU).
FAMILIES: dict[str, tuple[dict[str, int], bool]] = {
    "B/32": ({"image_size": 32, "layers": 2, "width": 64, "head_width": 64, "patch_size": 16}, True),
    "B/16": ({"image_size": 32, "layers": 1, "width": 64, "head_width": 64, "patch_size": 8}, False),
    "L/14": ({"image_size": 28, "layers": 2, "width": 128, "head_width": 64, "patch_size": 14}, True),
    "H/14": ({"image_size": 28, "layers": 1, "width": 320, "head_width": 80, "patch_size": 14}, False),
}
TEXT = {"context_length": 8, "vocab_size": 20, "width": 16, "heads": 2, "layers": 1}


@cache
def transformers() -> ModuleType:
    """Transformers, without its messages."""
    prepare_torchvision()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers as found

        found.logging.set_verbosity_error()
        found.logging.disable_progress_bar()
        found.CLIPVisionModel, found.CLIPModel  # noqa: B018 - imported when first asked for
        return found


@cache
def open_clip() -> ModuleType:
    """open_clip."""
    prepare_torchvision()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import open_clip as found

        return found


def clip(vision: dict[str, int], embed_dim: int, *, quick_gelu: bool = True, seed: int = 0) -> torch.nn.Module:
    """A whole open_clip model with random weights and a small text side."""
    model = open_clip().model
    torch.manual_seed(seed)
    text = model.CLIPTextCfg(**TEXT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.CLIP(embed_dim, model.CLIPVisionCfg(**vision), text, quick_gelu=quick_gelu).eval()


def tower(vision: dict[str, int], quick_gelu: bool, seed: int = 0) -> MappingCheckpoint:
    """A random tower as open_clip makes one, with biases that are not zero."""
    build = open_clip().model._build_vision_tower
    torch.manual_seed(seed)
    state = build(EMBED, dict(vision), quick_gelu).state_dict()
    moved = {f"visual.{name}": value + 0.1 * torch.randn_like(value) for name, value in state.items()}
    return known(moved, vision, quick_gelu)


def whole(seed: int = 0) -> MappingCheckpoint:
    """A whole open_clip model that knows its text side, too."""
    vision, quick_gelu = FAMILIES["B/32"]
    model = clip(vision, EMBED, quick_gelu=quick_gelu, seed=seed)
    return known(dict(model.state_dict()), vision, quick_gelu, text_cfg=TEXT)


def known(state: dict[str, Tensor], vision: dict[str, int], quick_gelu: bool, **more: Any) -> MappingCheckpoint:
    """A checkpoint in memory that knows its architecture."""
    found = MappingCheckpoint(state, "model")
    stated = {"embed_dim": EMBED, "quick_gelu": quick_gelu, "vision_cfg": vision, **more}
    found.metadata = {"architecture": json.dumps(stated)}
    return found


def random_images(size: int, seed: int = 0) -> Tensor:
    """Two of them."""
    return torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(seed))


def by_transformers(folder: Path, images: Tensor) -> Tensor:
    """Features by the model that Transformers loads from a folder, with every tensor in its place."""
    library = transformers()
    config = json.loads((folder / "config.json").read_text())
    kind = getattr(library, config["architectures"][0])
    model, told = kind.from_pretrained(folder, output_loading_info=True, dtype=torch.float32)
    assert not told["missing_keys"] and not told["unexpected_keys"] and not told["mismatched_keys"]
    model.eval()
    with torch.inference_mode():
        if kind is library.CLIPModel:
            projected: Tensor = model.visual_projection(model.vision_model(pixel_values=images).pooler_output)
            return projected
        found = model(pixel_values=images)
    features: Tensor = found.image_embeds if "WithProjection" in kind.__name__ else found.pooler_output
    return features


def by_open_clip(folder: Path, images: Tensor) -> Tensor:
    """Features by a folder without a text side, loaded as its card says."""
    model = open_clip().create_model(f"local-dir:{folder}", load_weights=False).eval()
    told = model.load_state_dict(load_file(folder / "open_clip_model.safetensors"), strict=False)
    assert not told.unexpected_keys and not [name for name in told.missing_keys if name.startswith("visual.")]
    with torch.inference_mode():
        features: Tensor = model.encode_image(images)
    return features


def ours(checkpoint: Checkpoint, images: Tensor) -> Tensor:
    """Features by our own encoder."""
    with torch.inference_mode():
        return Encoder.from_checkpoint(checkpoint)(images)


def alike(found: Tensor, expected: Tensor) -> bool:
    """Whether features are the same to 1e-5 of their norm."""
    return float((found - expected).norm() / expected.norm()) < 1e-5


def front(folder: Path) -> tuple[dict[str, Any], str]:
    """The metadata of a card, as the Hub takes it apart, and its text."""
    _, head, text = re.split(r"^---$", (folder / "README.md").read_text("utf-8"), maxsplit=2, flags=re.MULTILINE)
    return yaml.safe_load(head), text


def move(model: Any, seed: int) -> Any:
    """The model with its weights moved, and so a fine-tuned one."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in model.parameters():
            value.add_(0.02 * torch.randn(value.shape, generator=draw))
    return model
