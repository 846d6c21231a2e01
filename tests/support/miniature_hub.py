"""The experiment smoke in miniature, as its repositories lie on the Hub: a small CLIP, two experts, two test sets."""

from __future__ import annotations

import io
from pathlib import Path

import peers
import published_layouts
import torch
from loopback_hub import LoopbackHub

VISION = "tanganke/clip-vit-base-patch32"
BASE = "openai/clip-vit-base-patch32"
TASKS = ("mnist", "eurosat")
SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
IMAGES = {"image_size": 32, "patch_size": 16}
WORDS = {"vocab_size": 49408, "max_position_embeddings": 77}  # as the tokenizer has them


def add_smoke(hub: LoopbackHub, folder: Path) -> None:
    """Put everything that the experiment needs on a Hub; files are written to ``folder`` first."""
    library = peers.transformers()
    config = library.CLIPConfig(
        vision_config={**SIZES, **IMAGES}, text_config={**SIZES, **WORDS}, projection_dim=16, logit_scale_init_value=2.0
    )
    torch.manual_seed(0)
    whole = library.CLIPModel(config)
    file = io.BytesIO()
    torch.save(whole.state_dict(), file)
    config.save_pretrained(folder / "config")
    stated = (folder / "config" / "config.json").read_bytes()
    hub.add("model", BASE, {"config.json": stated, "pytorch_model.bin": file.getvalue()})
    tower = library.CLIPVisionModel(config.vision_config)
    base = {name: value for name, value in whole.state_dict().items() if name.startswith("vision_model.")}
    for task in TASKS:
        torch.manual_seed(len(task))
        moved = {
            name: value + 0.05 * torch.randn(value.shape) for name, value in base.items() if "position_ids" not in name
        }
        tower.load_state_dict(_named(moved, tower), strict=False)
        tower.save_pretrained(folder / task)
        hub.add("model", f"{VISION}_{task}", folder / task)
    hub.add("dataset", "ylecun/mnist", published_layouts.mnist(folder), license="mit")
    hub.add("dataset", "tanganke/eurosat", published_layouts.eurosat(folder))


def _named(state: dict[str, torch.Tensor], model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The same tensors under the names that a model of this version of the library has."""
    own = model.state_dict()
    short = {name.removeprefix("vision_model."): value for name, value in state.items()}
    return {
        name: short[name.removeprefix("vision_model.")] for name in own if name.removeprefix("vision_model.") in short
    }
