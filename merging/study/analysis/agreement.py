"""Two runs on the same images: which run is right on which image."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

CELLS = ("both", "only_a", "only_b", "neither")  # the runs that predict an image's class
Floats = NDArray[np.float64]
Right = NDArray[np.bool_]  # (m, n): whether each of m models predicts the class of each of n images


def compute_cells(a: Right, b: Right, is_matched: bool = False) -> Floats:
    """For every image the share of pairs of models, one of each run, in which each of ``CELLS`` holds (4, n).

    ``a`` (m_a, n) and ``b`` (m_b, n) say whether a model is right. With one model on either side the shares are ones
    and zeros. Otherwise every model of A is paired with every model of B, or only with the one in the same row if they
    are ``is_matched``.
    """
    right_a, right_b = a.astype(np.float64), b.astype(np.float64)
    share_a, share_b = right_a.mean(axis=0), right_b.mean(axis=0)
    both_right = (right_a * right_b).mean(axis=0) if is_matched else share_a * share_b
    shares = np.stack([both_right, share_a - both_right, share_b - both_right, 1 - share_a - share_b + both_right])
    rounded: Floats = np.round(shares, 12) + 0.0  # thirds leave rounding errors, and −0 becomes 0
    return rounded
