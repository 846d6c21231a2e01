"""LOT's closed form between its two extreme cases (LOT, section 5.1), on two tasks small enough to plot.

Each task's inputs span as many directions as the other's; some are shared. With orthogonal feature spaces the solution
takes each task vector on its own directions and drifts from neither expert. With shared ones it is an average weighted
by the energy of the inputs, and some drift remains.

Gradient descent changes a layer only along its inputs, so a task vector has nothing in directions in which its own task
has no input. With orthogonal feature spaces the plain sum then drifts from neither expert, too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

RANK, OUTPUTS, SEED = 4, 6, 0  # directions of a task's inputs, outputs of the layer, seed of the task vectors
TASKS = ("task A", "task B")
ENERGIES = np.array([1.0, 0.8, 0.6, 0.4])  # of a task's inputs along its directions, strongest first
Floats = NDArray[np.float64]


class ExtremeCase(NamedTuple):
    """The tables of one case.

    ``weights``: for every direction and task, how much of the task's vector the solution takes there, in [0, 1].
    ``drift``: for every way to merge and task, ‖X_k (T - T_k)‖² over the sum that the pretrained layer gives.
    """

    weights: pd.DataFrame
    drift: pd.DataFrame


def extreme_case(shared: int = 0, energy: float = 1.0, agreement: float = 0.0, trained: bool = True) -> ExtremeCase:
    """Two tasks whose inputs share ``shared`` of ``RANK`` directions, solved exactly.

    ``energy`` is that of task B's inputs relative to task A's; ``agreement`` the cosine of the two task vectors on
    every direction. ``trained`` projects each task vector onto its own task's inputs, as gradient descent leaves it;
    otherwise both act on every direction.
    """
    grams = _input_energies(shared, energy)  # (2, d): inputs lie along the axes, so XᵀX is diagonal
    vectors = task_vectors(grams.shape[1], agreement)
    if trained:
        vectors = vectors * (grams > 0)[:, :, None]
    total = grams.sum(axis=0)
    shares = grams / total
    mean = vectors.mean(axis=0)
    merges = {
        "pretrained": np.zeros_like(mean),
        "sum of both": vectors.sum(axis=0),
        "mean of both": mean,
        "LOT": (shares[:, :, None] * vectors).sum(axis=0),
    }
    drift = {name: _drift(grams, vectors, merged) for name, merged in merges.items()}
    scale = drift["pretrained"].sum()
    return ExtremeCase(
        pd.DataFrame(
            [
                (direction + 1, task, shares[k, direction], grams[k, direction])
                for direction in range(len(total))
                for k, task in enumerate(TASKS)
            ],
            columns=["direction", "task", "weight", "energy"],
        ),
        pd.DataFrame(
            [(name, task, energies[k] / scale) for name, energies in drift.items() for k, task in enumerate(TASKS)],
            columns=["merge", "task", "drift"],
        ),
    )


def _input_energies(shared: int, energy: float) -> Floats:
    """Energy of each task's inputs along each direction (2, d): task A's own, the shared ones, task B's own."""
    grams = np.zeros((2, 2 * RANK - shared))
    grams[0, :RANK] = ENERGIES
    grams[1, RANK - shared :] = energy * ENERGIES
    return grams


def task_vectors(width: int, agreement: float) -> Floats:
    """Two task vectors (2, d, outputs), of length one on every direction, with that cosine there."""
    draws = np.random.default_rng(SEED).normal(size=(2, 2 * RANK, OUTPUTS))[:, :width]
    first = draws[0] / np.linalg.norm(draws[0], axis=1, keepdims=True)
    across = draws[1] - (draws[1] * first).sum(axis=1, keepdims=True) * first
    across /= np.linalg.norm(across, axis=1, keepdims=True)
    return np.stack([first, agreement * first + np.sqrt(max(0.0, 1 - agreement**2)) * across])


def _drift(grams: Floats, vectors: Floats, merged: Floats) -> Floats:
    """‖X_k (T - T_k)‖² (2,) for one merged task vector (d, outputs)."""
    energies: Floats = (grams[:, :, None] * (merged - vectors) ** 2).sum(axis=(1, 2))
    return energies
