"""The overlap of task vectors, and how it changes when a vector is subtracted from all of them (AWD).

The subtracted ("redundant") vector is a linear combination of the task vectors. So every quantity follows from its
``coefficients`` (K,) and the Gram matrix ``gram`` (K, K) of the task vectors, both in float64.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
PARALLEL_MARGIN = 1e-12  # |cos| this close to 1 has gradient zero, so that rounding errors cannot start a descent


def expert_cosines(gram: Array, coefficients: Array) -> tuple[Array, Array]:
    """Cosines (K, K), 0 on the diagonal, and inverse norms (K,) of the task vectors minus the redundant vector.

    ``gram`` is (K, K), ``coefficients`` (K,). An expert that equals the pretrained model has no direction: its cosines
    and inverse norm are 0.
    """
    left = np.eye(len(gram)) - coefficients
    inner = left @ gram @ left.T
    squares = np.where(gram.diagonal() > 0, inner.diagonal(), 0.0)
    inverse = np.sqrt(np.divide(1.0, squares, out=np.zeros_like(squares), where=squares > 0))
    cos: Array = inner * np.outer(inverse, inverse)
    np.fill_diagonal(cos, 0.0)
    return cos, inverse


def overlap_loss(gram: Array, coefficients: Array, penalty: float) -> float:
    """Mean |cos| over pairs of experts plus ``penalty`` times the length of the redundant vector; scalar.

    ``gram`` is (K, K), ``coefficients`` (K,).
    """
    pairs = _count_pairs(gram)
    length = max(float(coefficients @ gram @ coefficients), 0.0) ** 0.5
    return float(np.abs(expert_cosines(gram, coefficients)[0]).sum() / pairs) + penalty * length if pairs else 0.0


def overlap_gradient(gram: Array, coefficients: Array, penalty: float) -> Array:
    """The gradient of ``overlap_loss`` with respect to the redundant vector, as coefficients (K,) of the task vectors.

    ``gram`` is (K, K), ``coefficients`` (K,).
    """
    cos, inverse = expert_cosines(gram, coefficients)
    signs = np.where(np.abs(cos) < 1 - PARALLEL_MARGIN, np.sign(cos), 0.0)
    weights = (signs * (cos * inverse[:, None] ** 2 - np.outer(inverse, inverse))).sum(axis=1)
    slope: Array = 2 * weights @ (np.eye(len(gram)) - coefficients) / max(_count_pairs(gram), 1)
    square = float(coefficients @ gram @ coefficients)
    return slope + penalty * coefficients / square**0.5 if square > 0 else slope


def _count_pairs(gram: Array) -> int:
    """Ordered pairs of experts that differ from the pretrained model."""
    changed = int(np.count_nonzero(gram.diagonal()))
    return changed * (changed - 1)
