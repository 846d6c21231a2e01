"""The libraries that exported models are for, imported when a test first asks for them; that takes seconds."""

from __future__ import annotations

import warnings
from functools import cache
from types import ModuleType

import torch

from merging.compat import prepare_torchvision


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
    text = model.CLIPTextCfg(context_length=8, vocab_size=20, width=16, heads=2, layers=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.CLIP(embed_dim, model.CLIPVisionCfg(**vision), text, quick_gelu=quick_gelu).eval()
