"""Parameters and tables of what is learned on top of a merged model."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as nnf
from torch import Tensor

from merging.methods.params import integer, real


def steps(default: int, slider: tuple[int, int]) -> Any:
    """The field of the number of steps; 0 leaves everything as it was drawn."""
    return integer(default, low=0, high=1_000_000, slider=slider, step=10, label="Steps", help="Updates by Adam.")


def lr(default: float, slider: tuple[float, float]) -> Any:
    """The field of Adam's learning rate."""
    return real(
        default, low=0.0, high=10.0, open_low=True, slider=slider, step=slider[0], label="Learning rate",
        help="Adam moves every number by at most about this much in a step.",
    )  # fmt: skip


def batch(default: int) -> Any:
    """The field of the number of images of each task in a step."""
    return integer(
        default, low=1, high=1_000_000, slider=(4, 64), label="Batch",
        help="Images of each task in a step; a task with fewer gives all of them.",
    )  # fmt: skip


def seed() -> Any:
    """The field of the seed of what is drawn before learning, and of the order of images."""
    return integer(
        0, low=0, high=2**31 - 1, slider=(0, 20), label="Seed",
        help="Of the first values and of the order of images. The same seed gives the same result on one machine.",
    )  # fmt: skip


def shift_row(task: str, targets: Tensor, before: Tensor, after: Tensor) -> dict[str, Any]:
    """How far features (n, e) are from their expert's, before and after: one row of the table "feature_shift".

    ``before`` and ``after`` are the mean |difference| per dimension, the cosine columns the mean of 1 − cosine.
    """
    row: dict[str, Any] = {"task": task}
    for name, features in {"before": before, "after": after}.items():
        row[name] = float((features - targets).abs().double().mean())
        row[f"cosine_{name}"] = float((1 - nnf.cosine_similarity(features, targets, dim=1)).double().mean())
    return {**row, "n": len(targets)}
