"""Merges along spheres: of the models' weights or of the task vectors, two of them or several."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from merging.base.numerics.linear_algebra import to_float64
from merging.methods.params import choice, fraction
from merging.methods.slot import Slot

WEIGHTS, TASK_VECTORS = "weights", "task_vectors"
SHORTEST = 1e-300  # a length in the place of zero, by which a zero vector can be divided


def position() -> Any:
    """The field of the position between two experts."""
    return fraction(
        0.5, symbol="t", label="Position", help="Place between the two experts: 0 gives the first, 1 the second."
    )


def between() -> Any:
    """The field of what is interpolated."""
    return choice(
        WEIGHTS,
        TASK_VECTORS,
        label="Between",
        help="Interpolate the experts' weights, or their task vectors, which lie farther apart.",
    )


def merge_on_spheres(slot: Slot, of: str, merge: Callable[[Tensor], Tensor]) -> Tensor:
    """The merged task vector (*S), where ``merge`` maps the tensors (K, *S) of the experts to one tensor (*S).

    The tensors are the weights or the task vectors, as ``of`` says, in float64. A single expert is unchanged.
    """
    if len(slot.task_vectors) == 1:
        return slot.task_vectors[0]
    vectors = to_float64(slot.task_vectors)
    if of == TASK_VECTORS:
        return merge(vectors).to(slot.task_vectors)
    pretrained = to_float64(slot.pretrained)
    return (merge(vectors + pretrained) - pretrained).to(slot.task_vectors)


def interpolate(first: Tensor, second: Tensor, t: float, is_straight: Callable[[Tensor], Tensor]) -> Tensor:
    """The vectors (*R, n) at position ``t`` on the arcs from vectors ``first`` (*R, n) to ``second`` (*R, n).

    The weights of the two are those of the arc between their directions. A zero vector counts as orthogonal to the
    other. ``is_straight`` maps angles (*R, 1) to booleans: where true, the vectors are interpolated on a line.
    """
    one, other = (side / side.norm(dim=-1, keepdim=True).clamp(min=SHORTEST) for side in (first, second))
    # Twice the angle of half the chord: exact for small angles, where the cosine is not. A right angle if one is zero.
    angle = 2 * torch.atan2((one - other).norm(dim=-1, keepdim=True), (one + other).norm(dim=-1, keepdim=True))
    straight = is_straight(angle)
    sine = torch.where(straight, 1.0, angle.sin())
    near = torch.where(straight, 1 - t, ((1 - t) * angle).sin() / sine)
    far = torch.where(straight, t, (t * angle).sin() / sine)
    return near * first + far * second
