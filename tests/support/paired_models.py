"""Models whose answers to the same images are alike."""

from __future__ import annotations

import numpy as np


def similar_models(rng: np.random.Generator, accuracies: list[float], n: int, tasks: str = "abcdefgh") -> dict:
    """{model: {task: answers}}, of which seven in ten are decided by how hard the image is."""
    models: dict[str, dict[str, np.ndarray]] = {f"m{k}": {} for k in range(len(accuracies))}
    for task in tasks:
        hard = rng.random(n)
        for name, accuracy in zip(models, accuracies, strict=True):
            models[name][task] = (np.where(rng.random(n) < 0.3, rng.random(n), hard) < accuracy).astype(float)
    return models
