"""The distance of features from those of an expert."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as nnf
from torch import Tensor

from merging.base.numerics.linear_algebra import to_float64, to_numbers


def shift_row(task: str, targets: Tensor, before: Tensor, after: Tensor) -> dict[str, Any]:
    """One row of the table "feature_shift": distances of features from their expert's, before and after a correction.

    ``targets`` (n, e) are the expert's features, ``before`` and ``after`` (n, e) the model's. The columns ``before``
    and ``after`` are the mean |difference| per dimension, the cosine columns the mean of 1 − cosine.
    """
    row: dict[str, Any] = {"task": task}
    for name, features in {"before": before, "after": after}.items():
        differences, cosine_distances = (features - targets).abs(), 1 - nnf.cosine_similarity(features, targets, dim=1)
        means = to_float64(differences).mean(), to_float64(cosine_distances).mean()
        row[name], row[f"cosine_{name}"] = to_numbers(*means)
    return {**row, "n": len(targets)}
