"""LOT's closed form between its two extreme cases (LOT, section 5.1), on two tasks small enough to plot.

Both tasks' inputs span equally many directions, some of them shared. With orthogonal feature spaces the solution takes
each task vector on its own directions and drifts from neither expert. With shared directions it is an average weighted
by the energy of the inputs, and some drift remains.

Gradient descent changes a layer only along its inputs, so a task vector is zero in directions in which its own task has
no input. With orthogonal feature spaces the plain sum then drifts from neither expert either.
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

    ``weights``: for every direction and task, the share of the task's vector that the solution takes, in [0, 1].
    ``drift``: for every merge and task, ‖X_k (T - T_k)‖² divided by its sum over tasks for the pretrained layer.
    """

    weights: pd.DataFrame
    drift: pd.DataFrame


def solve_extreme_case(
    shared_directions: int = 0, energy: float = 1.0, agreement: float = 0.0, trained: bool = True
) -> ExtremeCase:
    """Two tasks whose inputs share ``shared_directions`` of ``RANK`` directions, solved exactly.

    ``energy`` is the energy of task B's inputs relative to task A's. ``agreement`` is the cosine of the two task
    vectors on every direction. With ``trained`` each task vector is zero outside its own task's inputs, as after
    gradient descent; otherwise both act on every direction.
    """
    input_energies = _input_energies(shared_directions, energy)  # (2, d): inputs are along the axes, so XᵀX is diagonal
    vectors = task_vectors(input_energies.shape[1], agreement)
    if trained:
        vectors = vectors * (input_energies > 0)[:, :, None]
    total_energies = input_energies.sum(axis=0)
    shares = input_energies / total_energies
    mean = vectors.mean(axis=0)
    merges = {
        "pretrained": np.zeros_like(mean),
        "sum of both": vectors.sum(axis=0),
        "mean of both": mean,
        "LOT": (shares[:, :, None] * vectors).sum(axis=0),
    }
    drift = {name: _measure_drift(input_energies, vectors, merged) for name, merged in merges.items()}
    scale = drift["pretrained"].sum()
    return ExtremeCase(
        pd.DataFrame(
            [
                (direction + 1, task, shares[k, direction], input_energies[k, direction])
                for direction in range(len(total_energies))
                for k, task in enumerate(TASKS)
            ],
            columns=["direction", "task", "weight", "energy"],
        ),
        pd.DataFrame(
            [(name, task, energies[k] / scale) for name, energies in drift.items() for k, task in enumerate(TASKS)],
            columns=["merge", "task", "drift"],
        ),
    )


def _input_energies(shared_directions: int, energy: float) -> Floats:
    """Energy of each task's inputs along each direction (2, d): task A's own, the shared ones, task B's own."""
    grams = np.zeros((2, 2 * RANK - shared_directions))
    grams[0, :RANK] = ENERGIES
    grams[1, RANK - shared_directions :] = energy * ENERGIES
    return grams


def task_vectors(width: int, agreement: float) -> Floats:
    """Two task vectors (2, width, outputs): on every direction of length one, with ``agreement`` as their cosine."""
    normal = np.random.default_rng(SEED).normal(size=(2, 2 * RANK, OUTPUTS))[:, :width]
    first = normal[0] / np.linalg.norm(normal[0], axis=1, keepdims=True)
    orthogonal = normal[1] - (normal[1] * first).sum(axis=1, keepdims=True) * first
    orthogonal /= np.linalg.norm(orthogonal, axis=1, keepdims=True)
    return np.stack([first, agreement * first + np.sqrt(max(0.0, 1 - agreement**2)) * orthogonal])


def _measure_drift(grams: Floats, vectors: Floats, merged: Floats) -> Floats:
    """‖X_k (T - T_k)‖² (2,) for one merged task vector (d, outputs)."""
    energies: Floats = (grams[:, :, None] * (merged - vectors) ** 2).sum(axis=(1, 2))
    return energies
