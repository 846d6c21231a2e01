"""Experts that can be merged but do not belong: of another pretrained model, equal to it, and one given twice."""

from __future__ import annotations

from pathlib import Path

import tiny
import torch
from torch import Tensor

StateDict = dict[str, Tensor]
SENTENCES = {  # beginning of the warning on each odd expert
    "same": "same holds the pretrained model's numbers",
    "stranger": "stranger does not look fine-tuned from this pretrained model",
    "twice": "twice holds the same numbers as good",
}


def family() -> tuple[StateDict, dict[str, StateDict]]:
    """A pretrained model, an expert of it, and one odd expert of every kind."""
    base, experts = tiny.family(("good",))
    return base, {**experts, "same": dict(base), "stranger": tiny.pretrained(seed=7), "twice": dict(experts["good"])}


def write(folder: Path) -> tiny.Family:
    """The family as float32 files."""
    folder.mkdir(parents=True, exist_ok=True)
    base, experts = family()
    return tiny.Family(
        tiny.write(folder / "pretrained.safetensors", base, torch.float32, "pretrained"),
        {name: tiny.write(folder / f"{name}.safetensors", state, torch.float32) for name, state in experts.items()},
    )


def list_unwarned(text: str) -> set[str]:
    """The odd experts on which a text has no warning."""
    return {name for name, sentence in SENTENCES.items() if sentence not in text}
