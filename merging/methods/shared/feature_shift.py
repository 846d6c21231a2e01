"""How far features are from those of an expert."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as nnf
from torch import Tensor

from merging.base.numerics.linear_algebra import to_float64, to_numbers


def shift_row(task: str, targets: Tensor, before: Tensor, after: Tensor) -> dict[str, Any]:
    """How far features (n, e) are from their expert's, before and after: one row of the table "feature_shift".

    ``before`` and ``after`` are the mean |difference| per dimension, the cosine columns the mean of 1 − cosine.
    """
    row: dict[str, Any] = {"task": task}
    for name, features in {"before": before, "after": after}.items():
        off, turned = (features - targets).abs(), 1 - nnf.cosine_similarity(features, targets, dim=1)
        row[name], row[f"cosine_{name}"] = to_numbers(to_float64(off).mean(), to_float64(turned).mean())
    return {**row, "n": len(targets)}
